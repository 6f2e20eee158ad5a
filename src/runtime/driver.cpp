// Finding the driver's functions.
#include "runtime/driver.h"

#include <dlfcn.h>

#include "base/error.h"

namespace moetune {

const Driver& driver() {
  static const Driver found = [] {
    void* const library = dlopen("libcuda.so.1", RTLD_NOW);
    if (!library) throw machine_error(std::string("no CUDA driver: ") + dlerror());
    const auto find = [&](const char* name) {
      void* const function = dlsym(library, name);
      if (!function) throw machine_error(std::string("the CUDA driver lacks ") + name + ": install one of CUDA 12");
      return function;
    };
    Driver made;
// Two steps, so that the name that cuda.h gives a newer version (cuMemAlloc_v2) is found.
#define MOETUNE_NAME(function) #function
#define MOETUNE_FIND(function) made.function = reinterpret_cast<decltype(made.function)>(find(MOETUNE_NAME(function)));
    MOETUNE_DRIVER_FUNCTIONS(MOETUNE_FIND)
#undef MOETUNE_FIND
#undef MOETUNE_NAME
    return made;
  }();
  return found;
}

void require(CUresult result, const std::string& what) {
  if (result == CUDA_SUCCESS) return;
  const char* text = nullptr;
  driver().cuGetErrorString(result, &text);
  throw machine_error(what + ": " + (text ? text : "error " + std::to_string(static_cast<int>(result))));
}

CurrentContext::CurrentContext(CUcontext context) {
  CUcontext current = nullptr;
  require(driver().cuCtxGetCurrent(&current), "no CUDA context");
  if (current == context) return;
  require(driver().cuCtxPushCurrent(context), "cannot make the CUDA context current");
  pushed_ = true;
}

CurrentContext::~CurrentContext() {
  CUcontext popped = nullptr;
  if (pushed_) driver().cuCtxPopCurrent(&popped);
}

}  // namespace moetune
