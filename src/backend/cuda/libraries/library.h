// Libraries that are opened when they are first needed, so that the program starts without them.
#pragma once
#include <string>

namespace moetune {

/// A shared library opened by dlopen; never closed, since its threads may outlive us.
class Library {
 public:
  /// Opens CUDA's library `name` ("libnvrtc") in a version that runs with the driver: beside this program, by the
  /// loader's own search, then in toolkits and beside the programs of PATH. Throws Exit::machine with what to install.
  Library(const std::string& what, const std::string& name);

  /// The address of a symbol, typed as the declaration that `like` points to. Throws Exit::machine where missing.
  template <class Function>
  Function* symbol(const char* name, Function* like) const {
    (void)like;
    return reinterpret_cast<Function*>(address(name));
  }

 private:
  void* address(const char* name) const;
  std::string what_;
  void* handle_ = nullptr;
};

}  // namespace moetune
