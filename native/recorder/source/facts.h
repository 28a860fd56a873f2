#pragma once

#include "cupti_library.h"
#include "journal.h"
#include "options.h"

namespace busfare::recorder {

/// What a recording says of itself: the machine, its driver and CUPTI, the program, and what was asked for.
void state_facts(Journal& journal, const Options& options, const CuptiLibrary* cupti);

/// The devices as the driver knows them, where CUDA is in use already; nothing before. CUPTI's own rows come
/// later and count.
void state_devices(Journal& journal);

}  // namespace busfare::recorder
