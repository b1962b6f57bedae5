#ifndef BRIGADE_KERNELS_ADAM8_ADAM8_PARAMETERS_H_
#define BRIGADE_KERNELS_ADAM8_ADAM8_PARAMETERS_H_

// The parameters of adam8_cpu.h and adam8_cuda.h are Adam's, and so is what fills them.

#include "brigade/kernels/adam/adam_parameters.h"  // IWYU pragma: export

#endif  // BRIGADE_KERNELS_ADAM8_ADAM8_PARAMETERS_H_
