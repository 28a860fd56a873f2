#pragma once

#include <cstdint>
#include <vector>

#include "buffer_pool.h"
#include "cupti_library.h"
#include "journal.h"
#include "note.h"
#include "options.h"
#include "windows.h"

namespace busfare::recorder {

/// Turns the records of a CUPTI buffer into rows of the journal. Used by the writer thread alone.
///
/// Records of every CUPTI from CUDA 12.0 on begin with the fields of CUDA 12.0's, which are read through that
/// version's types; the few later fields that are wanted are read at their offset where the version has them.
class Decoder {
  public:
    /// Unless all calls are wanted, those that `is_call_of_interest` does not name are left out: a CUPTI that
    /// cannot turn single calls on gives them all.
    Decoder(const CuptiLibrary& cupti, Journal& journal, const Windows& windows, const Options& options);

    void decode(const FullBuffer& buffer);

    /// The rows of a call that callbacks noted; a copy's with its fingerprint or null.
    void note(const Note& note, const Note* fingerprint);

  private:
    void decode_record(const CUpti_Activity* record);
    void kernel(const CUpti_Activity* record);
    void copy(const CUpti_Activity* record);
    void peer_copy(const CUpti_Activity* record);
    void set(const CUpti_Activity* record);
    void call(const CUpti_Activity* record, CUpti_CallbackDomain domain);
    uint64_t call_name(CUpti_CallbackDomain domain, CUpti_CallbackId call);
    void wait(const CUpti_Activity* record);
    void event(const CUpti_Activity* record);
    void managed(const CUpti_Activity* record);
    void marker(const CUpti_Activity* record);
    void overhead(const CUpti_Activity* record);
    void allocation(const CUpti_Activity* record);
    void graph_launch(const CUpti_Activity* record);
    void device(const CUpti_Activity* record);
    void pcie_link(const CUpti_Activity* record);
    void nvlink(const CUpti_Activity* record);

    const CuptiLibrary& cupti_;
    Journal& journal_;
    const Windows& windows_;
    const bool all_calls_;
    const bool hashing_left_out_;          ///< calls that `LandedCopies` makes
    std::vector<uint64_t> call_names_[3];  ///< by domain and callback number; 0: not yet asked for
};

}  // namespace busfare::recorder
