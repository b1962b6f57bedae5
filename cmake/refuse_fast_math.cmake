# Stops where flags of the project or of the user would change bits. Headers refuse what a compiler
# tells them of (precision/rounding.h); this names the flag before anything is compiled.
set(given ${CMAKE_CXX_FLAGS} ${CMAKE_CUDA_FLAGS})
foreach(config IN LISTS CMAKE_BUILD_TYPE CMAKE_CONFIGURATION_TYPES)
  string(TOUPPER "${config}" config)
  list(APPEND given ${CMAKE_CXX_FLAGS_${config}} ${CMAKE_CUDA_FLAGS_${config}})
endforeach()
get_property(options DIRECTORY PROPERTY COMPILE_OPTIONS)
string(REGEX MATCH "[ ;,=:](-ffast-math|-Ofast|-funsafe-math-optimizations|-ffinite-math-only\
|-fassociative-math|-freciprocal-math|-fno-signed-zeros|-ffp-contract=fast|-ffp-model=fast|-ffp-model=aggressive|--?use_fast_math|--?ftz=true)[ ;,>]" found
  " ${given};${options} ")
if(found)
  message(FATAL_ERROR "compile without ${CMAKE_MATCH_1}: with it formulas give other bits")
endif()
