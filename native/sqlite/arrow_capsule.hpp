// Arrow's structures for Python.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

namespace busfare::sqlite {

// A capsule that releases what it holds, if nobody has taken that out.
template <typename T>
nanobind::object capsule(const T& content, const char* name) {
    auto held = std::make_unique<T>(content);
    PyObject* made = PyCapsule_New(held.get(), name, [](PyObject* object) {
        auto* back = static_cast<T*>(PyCapsule_GetPointer(object, PyCapsule_GetName(object)));
        if (back->release != nullptr) back->release(back);
        delete back;
    });
    if (made == nullptr) throw nanobind::python_error();
    held.release();
    return nanobind::steal(made);
}

}  // namespace busfare::sqlite
