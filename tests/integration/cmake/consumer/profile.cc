// Operations of a product, and how much of a machine they use.
#include <cstdio>

#include "brigade/profile/flops.h"

int main() {
  namespace profile = brigade::profile;
  const double flops = profile::MatmulFlops(2, 3, 4);
  const double share = profile::Utilization(1e12, 2, 2e12);
  std::printf("%g operations, a share of %g\n", flops, share);
  return flops == 48 && share == 0.25 ? 0 : 1;
}
