# What cmake --install adds to libraries and headers: the CMake package, pkg-config's files, the
# licence. No installed file names a folder of the build: all are found from where they lie, but for
# the CUDA toolkit, which pkg-config does not know: its folders are variables of pkg-config's files,
# cuda_includedir and cuda_libdir, to be set by users who have it elsewhere.
include(CMakePackageConfigHelpers)

set(BRIGADE_CMAKE_DIR "${CMAKE_INSTALL_LIBDIR}/cmake/Brigade")
configure_package_config_file(cmake/BrigadeConfig.cmake.in BrigadeConfig.cmake
  INSTALL_DESTINATION "${BRIGADE_CMAKE_DIR}"
  NO_SET_AND_CHECK_MACRO NO_CHECK_REQUIRED_COMPONENTS_MACRO)
write_basic_package_version_file(BrigadeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(
  FILES "${PROJECT_BINARY_DIR}/BrigadeConfig.cmake"
        "${PROJECT_BINARY_DIR}/BrigadeConfigVersion.cmake"
        cmake/graph.cmake cmake/packages.cmake
  DESTINATION "${BRIGADE_CMAKE_DIR}")
install(FILES LICENSE DESTINATION "${CMAKE_INSTALL_DATAROOTDIR}/doc/brigade")

# A family's file names the libraries of all families that it needs and requires none of their files:
# pkg-config walks each way from file to file. Static archives stand before those that they use, and
# need all libraries of others at the user's link. Shared ones stand behind: of those that stand before
# and that the program itself does not call, GNU ld 2.40 follows each way from library to library, and
# there are millions. Of others' libraries their users need the headers alone, but for Abseil's, whose
# inline functions in our headers call what is in its libraries.
function(brigade_pkg_config component)
  set(BRIGADE_PC_CFLAGS)
  set(archives)
  set(others)
  # In the order of graph.cmake a family stands behind those that it needs.
  set(families ${BRIGADE_NEEDS_${component}} ${component})
  foreach(family IN LISTS families)
    list(PREPEND archives ${BRIGADE_ARCHIVES_${family}})
    list(APPEND others ${BRIGADE_PKG_CONFIG_${family}})
  endforeach()
  list(REMOVE_DUPLICATES others)
  if(BUILD_SHARED_LIBS)
    list(REVERSE archives)
  endif()
  list(TRANSFORM archives PREPEND " -l")
  list(JOIN archives "" BRIGADE_PC_LIBS)
  set(flags ${others})
  list(FILTER flags INCLUDE REGEX "^-")
  list(FILTER others EXCLUDE REGEX "^-")
  set(private "-pthread")
  list(PREPEND private ${flags})
  if(BRIGADE_CUDA)
    list(GET CUDAToolkit_INCLUDE_DIRS 0 cuda_include)
    set(BRIGADE_PC_CUDA "cuda_includedir=${cuda_include}\ncuda_libdir=${CUDAToolkit_LIBRARY_DIR}\n")
    string(APPEND BRIGADE_PC_CFLAGS " -I\${cuda_includedir}")
    list(APPEND private "-L\${cuda_libdir}" -lcudart_static -lrt -ldl)
  endif()
  if(BUILD_SHARED_LIBS)
    set(abseil ${others})
    list(FILTER abseil INCLUDE REGEX "^absl_")
    list(FILTER others EXCLUDE REGEX "^absl_")
    set(BRIGADE_PC_PRIVATE_REQUIRES ${others})
    set(BRIGADE_PC_PRIVATE_LIBS ${private})
    set(others ${abseil})
  else()
    list(JOIN private " " private)
    string(APPEND BRIGADE_PC_LIBS " ${private}")
  endif()
  list(JOIN others ", " BRIGADE_PC_REQUIRES)
  list(JOIN BRIGADE_PC_PRIVATE_REQUIRES ", " BRIGADE_PC_PRIVATE_REQUIRES)
  list(JOIN BRIGADE_PC_PRIVATE_LIBS " " BRIGADE_PC_PRIVATE_LIBS)
  # As the target with rounding.h has it (brigade_library.cmake).
  if("precision" IN_LIST families)
    string(APPEND BRIGADE_PC_CFLAGS " ${BRIGADE_BIT_FLAGS}")
  endif()
  set(BRIGADE_PC_COMPONENT ${component})
  set(BRIGADE_PC_DEFINE 0)
  if(BRIGADE_CUDA)
    set(BRIGADE_PC_DEFINE 1)
  endif()
  # From the file's own folder, relative, so that the tree may be moved, wherever GNUInstallDirs and
  # the user put libraries and headers.
  set(from "${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig")
  file(RELATIVE_PATH BRIGADE_PC_PREFIX "${from}" "${CMAKE_INSTALL_PREFIX}")
  file(RELATIVE_PATH BRIGADE_PC_LIBDIR "${from}" "${CMAKE_INSTALL_FULL_LIBDIR}")
  file(RELATIVE_PATH BRIGADE_PC_INCLUDEDIR "${from}" "${CMAKE_INSTALL_FULL_INCLUDEDIR}")
  # As pkg-config quotes the blanks of the file's own folder.
  foreach(variable IN ITEMS PREFIX LIBDIR INCLUDEDIR CUDA)
    string(REPLACE " " "\\ " BRIGADE_PC_${variable} "${BRIGADE_PC_${variable}}")
  endforeach()
  configure_file(cmake/brigade.pc.in pkgconfig/brigade-${component}.pc @ONLY)
  install(FILES "${PROJECT_BINARY_DIR}/pkgconfig/brigade-${component}.pc"
    DESTINATION "${CMAKE_INSTALL_LIBDIR}/pkgconfig")
endfunction()

foreach(component IN LISTS brigade_components)
  install(EXPORT Brigade-${component} NAMESPACE Brigade:: DESTINATION "${BRIGADE_CMAKE_DIR}")
  brigade_pkg_config(${component})
endforeach()
