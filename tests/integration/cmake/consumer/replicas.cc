// The fragment of four that is due behind the tenth step.
#include <cstdio>

#include "brigade/replicas/options.h"

int main() {
  const brigade::replicas::OuterOptions options = {.period = 8, .fragments = 4};
  const int fragment = brigade::replicas::DueFragment(options, 10);
  std::printf("%s: fragment %d\n", brigade::replicas::Describe(options).c_str(), fragment);
  return fragment == 0 && brigade::replicas::DueFragment(options, 11) == -1 ? 0 : 1;
}
