#ifndef BRIGADE_NN_WARP_H_
#define BRIGADE_NN_WARP_H_

namespace brigade::nn {

// Threads of a GPU's warp.
inline constexpr int kWarpSize = 32;

}  // namespace brigade::nn

#endif  // BRIGADE_NN_WARP_H_
