// A file on disk as a source.
#pragma once

#include <string>

#include "pager.hpp"

namespace busfare::sqlite {

// Reads by pread into memory of ours. A memory map would save the copy (a fifth of the time), but a file that
// is cut while it is read would then end the program by a signal, in whatever thread touched the page.
class FileSource final : public Source {
  public:
    // Throws Unreadable if the file cannot be opened.
    explicit FileSource(const std::string& path);
    ~FileSource() override;
    FileSource(const FileSource&) = delete;
    FileSource& operator=(const FileSource&) = delete;

    std::uint64_t size() const override { return size_; }
    std::size_t read(std::uint64_t offset, std::uint8_t* into, std::size_t size) const override;

  private:
    int file_ = -1;
    std::uint64_t size_ = 0;
};

}  // namespace busfare::sqlite
