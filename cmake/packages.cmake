# Finds the libraries of others, for Brigade's own build and for users of an installed Brigade.
# Needs graph.cmake.

# brigade_find(TARGET PACKAGE NAME) makes the target by a package of CMake's, brigade_find(TARGET
# FILES HEADER LIBRARY) by a header and a library, brigade_find(TARGET HEADER HEADER MACRO) by a
# header, with a macro for those who include it. One that exists is taken, so that a superproject may
# bring its own.
function(brigade_find target kind)
  if(TARGET ${target})
    return()
  endif()
  if(kind STREQUAL "PACKAGE")
    find_package(${ARGN} QUIET)
    return()
  endif()
  list(GET ARGN 0 header)
  list(GET ARGN 1 library)
  if(kind STREQUAL "HEADER")
    find_path(${library}_INCLUDE_DIR "${header}")
    mark_as_advanced(${library}_INCLUDE_DIR)
    if(${library}_INCLUDE_DIR)
      add_library(${target} INTERFACE IMPORTED GLOBAL)
      set_target_properties(${target} PROPERTIES
        INTERFACE_COMPILE_DEFINITIONS "${library}"
        INTERFACE_INCLUDE_DIRECTORIES "${${library}_INCLUDE_DIR}")
    endif()
    return()
  endif()
  find_path(BRIGADE_${library}_INCLUDE_DIR "${header}" PATH_SUFFIXES "${library}")
  find_library(BRIGADE_${library}_LIBRARY "${library}")
  mark_as_advanced(BRIGADE_${library}_INCLUDE_DIR BRIGADE_${library}_LIBRARY)
  if(BRIGADE_${library}_INCLUDE_DIR AND BRIGADE_${library}_LIBRARY)
    add_library(${target} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(${target} PROPERTIES
      IMPORTED_LOCATION "${BRIGADE_${library}_LIBRARY}"
      INTERFACE_INCLUDE_DIRECTORIES "${BRIGADE_${library}_INCLUDE_DIR}")
  endif()
endfunction()

# brigade_find_packages(NAMES CUDA OUT): finds each of the names, and the toolkit if CUDA; sets OUT
# to the advice for the first that is missing, or to nothing.
macro(brigade_find_packages names cuda out)
  set(${out} "")
  find_package(Threads QUIET)
  if(NOT Threads_FOUND)
    set(${out} "the system's threads")
  endif()
  if(${cuda})
    find_package(CUDAToolkit QUIET)
    if(NOT CUDAToolkit_FOUND)
      set(${out} "the CUDA toolkit")
    endif()
  endif()
  foreach(brigade_package IN ITEMS ${names})
    set(brigade_how ${BRIGADE_EXTERNAL_${brigade_package}})
    list(POP_FRONT brigade_how brigade_title brigade_debian_package)
    list(GET brigade_how 0 brigade_target)
    brigade_find(${brigade_how})
    if(NOT TARGET ${brigade_target} AND NOT ${out})
      set(${out} "${brigade_title} (${brigade_debian_package})")
    endif()
  endforeach()
endmacro()
