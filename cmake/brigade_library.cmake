# brigade_library(name ...): a library of the graph, its alias Brigade::name, and its installation.
# One without sources is an INTERFACE library. Files are relative to the project's folder.
#
# CUDA_ONLY, CUDA_SOURCES, CUDA_DEPS, CUDA_LIBRARIES and CUDA_FLAGS count with BRIGADE_CUDA alone.

set(BRIGADE_LISTS HEADERS INCLUDES SOURCES CUDA_SOURCES DEPS CUDA_DEPS PUBLIC_LIBRARIES
  PRIVATE_LIBRARIES OPTIONAL_LIBRARIES CUDA_LIBRARIES FLAGS CUDA_FLAGS)

# Flags that the code's bits and speed need. Those of FLAGS stand behind, so that they win; so does
# the optimisation, behind the -O2 of a RelWithDebInfo.
function(brigade_flags target flags cuda_flags)
  target_compile_options(${target} PRIVATE
    "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<NOT:$<CONFIG:Debug>>>:${BRIGADE_OPTIMIZED_FLAGS}>"
    "$<$<COMPILE_LANGUAGE:CXX>:${BRIGADE_BIT_FLAGS};${BRIGADE_FLOAT_FLAGS};${flags}>")
  if(BRIGADE_CUDA)
    # CMake 3.25 does not know yet that nvcc takes it.
    if("cuda_std_20" IN_LIST CMAKE_CUDA_COMPILE_FEATURES)
      target_compile_features(${target} PRIVATE cuda_std_20)
    else()
      list(PREPEND cuda_flags -std=c++20)
    endif()
    set(host_flags ${BRIGADE_BIT_FLAGS} ${BRIGADE_FLOAT_FLAGS})
    list(JOIN host_flags "," host_flags)
    list(PREPEND cuda_flags ${BRIGADE_CUDA_BIT_FLAGS} ${BRIGADE_CUDA_FLAGS}
      -Xcompiler=${host_flags})
    target_compile_options(${target} PRIVATE "$<$<COMPILE_LANGUAGE:CUDA>:${cuda_flags}>")
  endif()
endfunction()

# Who includes a header with formulas compiles them: the flags of their bits come along, to all that
# links the target.
function(brigade_bits target)
  target_compile_options(${target} INTERFACE
    "$<$<COMPILE_LANGUAGE:CXX>:${BRIGADE_BIT_FLAGS}>"
    "$<$<COMPILE_LANGUAGE:CUDA>:${BRIGADE_CUDA_BIT_FLAGS};-Xcompiler=${BRIGADE_BIT_FLAGS}>")
endfunction()

function(brigade_install target headers)
  install(TARGETS ${target} EXPORT Brigade-${BRIGADE_COMPONENT}
    LIBRARY DESTINATION "${CMAKE_INSTALL_LIBDIR}"
    ARCHIVE DESTINATION "${CMAKE_INSTALL_LIBDIR}")
  foreach(header IN LISTS headers)
    get_filename_component(folder "${header}" DIRECTORY)
    install(FILES "${PROJECT_SOURCE_DIR}/${header}"
      DESTINATION "${CMAKE_INSTALL_INCLUDEDIR}/brigade/${folder}")
  endforeach()
endfunction()

function(brigade_library name)
  cmake_parse_arguments(PARSE_ARGV 1 A "CUDA_ONLY;LINKS_DL" "" "${BRIGADE_LISTS}")
  if(A_UNPARSED_ARGUMENTS)
    message(FATAL_ERROR "brigade_library(${name}): what is ${A_UNPARSED_ARGUMENTS}?")
  endif()
  if(A_CUDA_ONLY AND NOT BRIGADE_CUDA)
    return()
  endif()
  set(sources ${A_SOURCES})
  set(libraries ${A_DEPS})
  set(public ${A_PUBLIC_LIBRARIES})
  if(BRIGADE_CUDA)
    list(APPEND sources ${A_CUDA_SOURCES})
    list(APPEND libraries ${A_CUDA_DEPS})
    list(APPEND public ${A_CUDA_LIBRARIES})
  endif()
  list(TRANSFORM libraries PREPEND Brigade::)
  list(APPEND public Threads::Threads)
  if(A_LINKS_DL)
    list(APPEND public ${CMAKE_DL_LIBS})
  endif()

  set(target brigade_${name})
  set(scope PUBLIC)
  if(sources)
    list(TRANSFORM sources PREPEND "${PROJECT_SOURCE_DIR}/")
    add_library(${target} ${sources})
    # Highway includes a file once more for each instruction set, by its path from here.
    target_include_directories(${target} PRIVATE "${PROJECT_SOURCE_DIR}")
    brigade_flags(${target} "${A_FLAGS}" "${A_CUDA_FLAGS}")
    set_target_properties(${target} PROPERTIES
      CXX_EXTENSIONS OFF
      CUDA_EXTENSIONS OFF
      POSITION_INDEPENDENT_CODE ON
      VERSION ${PROJECT_VERSION}
      SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
      DEFINE_SYMBOL ""
      INSTALL_RPATH "$ORIGIN")
    # What headers do not show: users link it, and compile without.
    foreach(library IN LISTS A_PRIVATE_LIBRARIES)
      if(library IN_LIST BRIGADE_HEADER_ONLY)
        set(library "$<BUILD_INTERFACE:${library}>")
      endif()
      target_link_libraries(${target} PRIVATE "${library}")
    endforeach()
    # Compiled with, where they are; loaded as the program runs.
    foreach(library IN LISTS A_OPTIONAL_LIBRARIES)
      if(TARGET ${library})
        target_link_libraries(${target} PRIVATE "$<BUILD_INTERFACE:${library}>")
      endif()
    endforeach()
  else()
    set(scope INTERFACE)
    add_library(${target} INTERFACE)
  endif()
  add_library(Brigade::${name} ALIAS ${target})
  set_target_properties(${target} PROPERTIES EXPORT_NAME ${name})
  target_compile_features(${target} ${scope} cxx_std_20)
  target_compile_definitions(${target} ${scope} BRIGADE_CUDA=$<BOOL:${BRIGADE_CUDA}>)
  target_include_directories(${target} ${scope}
    "$<BUILD_INTERFACE:${BRIGADE_INCLUDE_DIR}>"
    "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>")
  # All formulas are made of it.
  if("precision/rounding.h" IN_LIST A_HEADERS)
    brigade_bits(${target})
  endif()
  foreach(folder IN LISTS A_INCLUDES)
    target_include_directories(${target} SYSTEM ${scope}
      "$<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/${folder}>"
      "$<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}/brigade/${folder}>")
  endforeach()
  target_link_libraries(${target} ${scope} ${libraries} ${public})
  if(BRIGADE_INSTALL)
    brigade_install(${target} "${A_HEADERS}")
  endif()

  if(sources)
    # The linker goes through archives once: users first.
    set(BRIGADE_COMPONENT_ARCHIVES ${target} ${BRIGADE_COMPONENT_ARCHIVES} PARENT_SCOPE)
  endif()
endfunction()
