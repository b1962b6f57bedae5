#include "brigade/emulator/runtime/counts.h"

#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>

namespace brigade::emulator {
namespace {

struct OfKernel {
  int64_t launches = 0, executed = 0, bank_conflicts = 0;
  AccessCounts loads, stores, wide;
};

std::string Demangled(const std::string& name) {
  int status = 0;
  char* const text = abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status);
  const std::string readable = status == 0 ? text : name;
  std::free(text);
  return readable;
}

double Ratio(int64_t a, int64_t b) {
  return b == 0 ? 0.0 : static_cast<double>(a) / static_cast<double>(b);
}

}  // namespace

void PrintCounts(const std::vector<LaunchRecord>& launches) {
  std::map<std::string, OfKernel> kernels;
  for (const LaunchRecord& launch : launches) {
    OfKernel& of = kernels[launch.kernel];
    ++of.launches;
    of.executed += launch.executed;
    of.bank_conflicts += launch.bank_conflicts;
    of.loads += launch.loads;
    of.stores += launch.stores;
    of.wide += launch.wide;
  }
  std::fprintf(stderr, "%8s %14s %14s %14s %7s %7s %6s %9s  %s\n", "launches", "instructions",
               "bytes loaded", "bytes stored", "loads", "stores", "wide", "conflicts", "kernel");
  for (const auto& [name, of] : kernels) {
    std::fprintf(stderr, "%8lld %14lld %14lld %14lld %7.3f %7.3f %5.1f%% %9lld  %s\n",
                 static_cast<long long>(of.launches), static_cast<long long>(of.executed),
                 static_cast<long long>(of.loads.bytes), static_cast<long long>(of.stores.bytes),
                 Ratio(of.loads.sectors, of.loads.least_sectors),
                 Ratio(of.stores.sectors, of.stores.least_sectors),
                 100.0 * Ratio(of.wide.requests, of.loads.requests + of.stores.requests),
                 static_cast<long long>(of.bank_conflicts), Demangled(name).c_str());
  }
}

}  // namespace brigade::emulator
