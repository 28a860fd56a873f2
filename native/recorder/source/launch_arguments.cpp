#include "launch_arguments.h"

#include <cupti.h>
#include <dlfcn.h>

namespace busfare::recorder {
namespace {

static_assert(offsetof(cuLaunchCooperativeKernel_params, kernelParams) ==
              offsetof(cuLaunchKernel_params, kernelParams));
static_assert(offsetof(cuLaunchKernel_params, gridDimX) == 8 && offsetof(CUlaunchConfig, gridDimX) == 0 &&
              offsetof(CUlaunchConfig, sharedMemBytes) == 24);

/// The arguments that a launch has in one buffer, or null.
const char* packed_in(void** extra) {
    for (; extra && extra[0] != CU_LAUNCH_PARAM_END; extra += 2) {
        if (extra[0] == CU_LAUNCH_PARAM_BUFFER_POINTER) return static_cast<const char*>(extra[1]);
    }
    return nullptr;
}

}  // namespace

std::string_view without_suffix(std::string_view name) {
    for (const std::string_view suffix : {"_ptsz", "_v2"}) {
        if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
    }
    return name;
}

LaunchCall launch_call(std::string_view plain_name) {
    if (plain_name == "cuLaunchKernel") return LaunchCall::kAlone;
    if (plain_name == "cuLaunchCooperativeKernel") return LaunchCall::kTogether;
    if (plain_name == "cuLaunchKernelEx") return LaunchCall::kByConfiguration;
    return LaunchCall::kNone;
}

LaunchArguments LaunchArguments::of(LaunchCall call, const void* parameters) {
    LaunchArguments launch{};
    void** extra = nullptr;
    if (call == LaunchCall::kByConfiguration) {
        const auto& asked = *static_cast<const cuLaunchKernelEx_params*>(parameters);
        launch.function = asked.f;
        launch.each = asked.kernelParams;
        extra = asked.extra;
        if (asked.config) std::memcpy(launch.shape.data(), &asked.config->gridDimX, sizeof launch.shape);
    } else {
        const auto& asked = *static_cast<const cuLaunchKernel_params*>(parameters);
        launch.function = asked.f;
        launch.each = asked.kernelParams;
        if (call == LaunchCall::kAlone) extra = asked.extra;  // cooperative launches have none
        std::memcpy(launch.shape.data(), &asked.gridDimX, sizeof launch.shape);
    }
    if (!launch.each) launch.packed = packed_in(extra);
    return launch;
}

bool ArgumentPlaces::find() {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
    if (!driver) return false;
    of_function_ = reinterpret_cast<ParamInfo*>(::dlsym(driver, "cuFuncGetParamInfo"));
    of_kernel_ =
        of_function_ ? reinterpret_cast<ParamInfo*>(::dlsym(driver, "cuKernelGetParamInfo")) : nullptr;
    return of_kernel_;
}

}  // namespace busfare::recorder
