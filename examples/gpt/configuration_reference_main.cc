// Prints docs/configuration.md: bazel run //examples/gpt:configuration_reference

#include <cstdio>

#include "brigade/examples/gpt/key_page.h"

int main() {
  std::fputs(brigade::gpt::ConfigurationPage().c_str(), stdout);
  return std::fflush(stdout) == 0 ? 0 : 1;
}
