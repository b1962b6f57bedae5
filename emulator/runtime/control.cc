#include "brigade/emulator/runtime/control.h"

#include <cstdio>

#include "brigade/emulator/runtime/machine.h"

namespace brigade::emulator {

std::vector<Report> TakeReports() { return Machine::Get().TakeReports(); }

void Inject(const Fault& fault) {
  Machine& machine = Machine::Get();
  const device::MutexLock lock(machine.mutex);
  machine.faults.push_back(fault);
}

int64_t Calls(const std::string& function) {
  Machine& machine = Machine::Get();
  const device::MutexLock lock(machine.mutex);
  return machine.calls[function];
}

std::vector<int> DevicesWithContext() {
  Machine& machine = Machine::Get();
  const device::MutexLock lock(machine.mutex);
  std::vector<int> with;
  for (const auto& device : machine.devices) {
    if (device->has_context) with.push_back(device->ordinal);
  }
  return with;
}

void RecordLaunches(bool on) {
  Machine& machine = Machine::Get();
  const device::MutexLock lock(machine.mutex);
  machine.records_launches = on;
}

std::vector<LaunchRecord> TakeLaunches() {
  Machine& machine = Machine::Get();
  const device::MutexLock lock(machine.mutex);
  return std::exchange(machine.launches, {});
}

}  // namespace brigade::emulator
