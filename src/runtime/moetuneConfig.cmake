# find_package(moetune) gives moetune::moetune, the C interface of include/moetune.h.
get_filename_component(moetune_prefix "${CMAKE_CURRENT_LIST_DIR}/../../.." ABSOLUTE)
if(NOT TARGET moetune::moetune)
  add_library(moetune::moetune SHARED IMPORTED)
  set_target_properties(moetune::moetune PROPERTIES IMPORTED_LOCATION "${moetune_prefix}/lib/libmoetune.so"
                        IMPORTED_NO_SONAME ON INTERFACE_INCLUDE_DIRECTORIES "${moetune_prefix}/include")
endif()
