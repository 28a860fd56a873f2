#pragma once

#include "cupti_library.h"
#include "journal.h"
#include "options.h"

namespace busfare::recorder {

/// What a recording says of itself: the machine, its driver and CUPTI, the program, and what was asked for.
void state_facts(Journal& journal, const Options& options, const CuptiLibrary* cupti);

}  // namespace busfare::recorder
