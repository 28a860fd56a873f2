// The two halves of the Python module: what adds rows up, and what looks rows up.
#pragma once

#include <nanobind/nanobind.h>

void bind_lanes(nanobind::module_& module);
void bind_rows(nanobind::module_& module);
