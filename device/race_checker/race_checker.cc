#include "brigade/device/race_checker/race_checker.h"

#include <cstdio>
#include <limits>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "brigade/device/race_checker/actor_table.h"
#include "brigade/device/race_checker/interval_map.h"
#include "brigade/device/race_checker/shadow.h"

namespace brigade::device {
namespace {

constexpr size_t kReportsKept = 256;

// Buffers and borrows over an interval.
struct Coverage {
  int count = 0;
  uintptr_t base = 0;  // where the first of them begins
  std::shared_ptr<const std::string> name;

  bool empty() const { return count == 0; }
  friend bool operator==(const Coverage&, const Coverage&) = default;
};

std::string Describe(const Race::Side& side) {
  return absl::StrCat("\"", side.operation, "\" on ",
                      side.context.empty()
                          ? side.stream
                          : absl::StrCat("stream \"", side.stream, "\" of \"", side.context, "\""),
                      side.write ? " writes" : " reads");
}

}  // namespace

class RaceChecker::Impl {
 public:
  int ThisThread() {
    return actors.ThisThread([this](std::vector<bool>& used) { MarkUsed(used); });
  }

  void MarkUsed(std::vector<bool>& used) const {
    followed.MarkActors(used);
    loose.MarkActors(used);
  }

  // What the thread did so far comes before what it enqueues, records or waits for now.
  void JoinThisThread(ActorId stream) { actors.clock(stream).Join(actors.clock(ThisThread())); }

  absl::Status CheckAccesses(ActorId actor, const Operation& operation);
  void Report(const internal::PastAccess& past, const internal::PastAccess& now,
              std::string& first_message);

  mutable std::mutex mutex;
  internal::ActorTable actors;
  internal::IntervalMap<Coverage> coverage;
  internal::Shadow followed;  // history of covered memory
  internal::Shadow loose;     // history of the rest
  std::set<std::tuple<Race::Side, Race::Side, std::string>> reported;
  std::vector<Race> reports;
  int64_t dropped = 0;
};

absl::Status RaceChecker::Impl::CheckAccesses(ActorId actor, const Operation& operation) {
  internal::PastAccess now;
  now.actor = actor;
  now.tick = actors.Tick(actor);
  now.side = std::make_shared<const Race::Side>(
      Race::Side{std::string(operation.name), actors.stream(actor), actors.context(actor), false});
  const VectorClock& clock = actors.clock(actor);
  const auto retired = [this](int other) { return actors.ended(other); };
  std::string message;
  const auto conflict = [&](const internal::PastAccess& past) { Report(past, now, message); };
  for (const device::Access& access : operation.accesses) {
    if (access.bytes <= 0) continue;
    now.begin = reinterpret_cast<uintptr_t>(access.data);
    now.end = now.begin + static_cast<uintptr_t>(access.bytes);
    now.write = access.write;
    uintptr_t at = now.begin;
    coverage.ForEach(now.begin, now.end, [&](uintptr_t begin, uintptr_t end, const Coverage&) {
      if (at < begin) loose.Add(at, begin, now, clock, retired, conflict);
      followed.Add(begin, end, now, clock, retired, conflict);
      at = end;
    });
    if (at < now.end) loose.Add(at, now.end, now, clock, retired, conflict);
  }
  return message.empty() ? absl::OkStatus() : absl::FailedPreconditionError(message);
}

void RaceChecker::Impl::Report(const internal::PastAccess& past, const internal::PastAccess& now,
                               std::string& first_message) {
  Race race{*past.side, *now.side, ""};
  race.first.write = past.write;
  race.second.write = now.write;
  if (race.second < race.first) std::swap(race.first, race.second);

  const uintptr_t begin = std::max(past.begin, now.begin);
  const uintptr_t end = std::min(past.end, now.end);
  Coverage memory;
  coverage.ForEach(begin, begin + 1,
                   [&](uintptr_t, uintptr_t, const Coverage& found) { memory = found; });
  const std::string name = memory.name != nullptr ? *memory.name : std::string();
  race.message = absl::StrCat(
      "race: ", Describe(race.first), " and ", Describe(race.second), " bytes ",
      memory.empty()
          ? absl::StrCat("[0x", absl::Hex(begin), ", 0x", absl::Hex(end), ")")
          : absl::StrCat("[", begin - memory.base, ", ", end - memory.base, ") of \"", name, "\""),
      "; no event orders them");
  if (first_message.empty()) first_message = race.message;
  auto pair = std::make_tuple(race.first, race.second, name);
  if (reported.contains(pair)) return;
  if (reports.size() == kReportsKept) {
    ++dropped;
    return;
  }
  reported.insert(std::move(pair));
  std::fprintf(stderr, "%s\n", race.message.c_str());
  reports.push_back(std::move(race));
}

RaceChecker::RaceChecker() : impl_(std::make_unique<Impl>()) {}
RaceChecker::~RaceChecker() = default;

RaceChecker& RaceChecker::Default() {
  // Never destroyed: streams may outlive main.
  static RaceChecker* const checker = new RaceChecker;
  return *checker;
}

std::vector<Race> RaceChecker::reports() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->reports;
}

int64_t RaceChecker::reports_dropped() const {
  std::lock_guard lock(impl_->mutex);
  return impl_->dropped;
}

void RaceChecker::ClearReports() {
  std::lock_guard lock(impl_->mutex);
  impl_->reports.clear();
  impl_->reported.clear();
  impl_->dropped = 0;
}

VectorClock RaceChecker::HostRelease() {
  std::lock_guard lock(impl_->mutex);
  return impl_->actors.clock(impl_->ThisThread());
}

void RaceChecker::HostAcquire(const VectorClock& clock) {
  std::lock_guard lock(impl_->mutex);
  VectorClock& known = impl_->actors.clock(impl_->ThisThread());
  known.Join(clock);
  impl_->loose.ForgetOver(known);
}

absl::Status RaceChecker::HostRead(absl::string_view operation, const void* data, int64_t bytes) {
  std::lock_guard lock(impl_->mutex);
  return impl_->CheckAccesses(impl_->ThisThread(), {operation, {Reads(data, bytes)}});
}

absl::Status RaceChecker::HostWrite(absl::string_view operation, void* data, int64_t bytes) {
  std::lock_guard lock(impl_->mutex);
  return impl_->CheckAccesses(impl_->ThisThread(), {operation, {Writes(data, bytes)}});
}

int64_t RaceChecker::intervals() const {
  std::lock_guard lock(impl_->mutex);
  return static_cast<int64_t>(impl_->followed.intervals() + impl_->loose.intervals());
}

int64_t RaceChecker::actors() const {
  std::lock_guard lock(impl_->mutex);
  return static_cast<int64_t>(impl_->actors.size());
}

RaceChecker::ActorId RaceChecker::AddStream(absl::string_view stream, absl::string_view context) {
  std::lock_guard lock(impl_->mutex);
  return impl_->actors.AddStream(std::string(stream), std::string(context),
                                 [this](std::vector<bool>& used) { impl_->MarkUsed(used); });
}

RaceChecker::ActorId RaceChecker::AddBorrowedStream(absl::string_view stream,
                                                    absl::string_view context, int device,
                                                    const void* native) {
  std::lock_guard lock(impl_->mutex);
  return impl_->actors.AddBorrowedStream(
      std::string(stream), std::string(context), {device, native},
      [this](std::vector<bool>& used) { impl_->MarkUsed(used); });
}

void RaceChecker::RemoveStream(ActorId stream) {
  std::lock_guard lock(impl_->mutex);
  impl_->actors.End(stream);
}

absl::Status RaceChecker::Enqueue(ActorId stream, const Operation& operation) {
  std::lock_guard lock(impl_->mutex);
  impl_->JoinThisThread(stream);
  return impl_->CheckAccesses(stream, operation);
}

void RaceChecker::Record(ActorId stream, VectorClock& event) {
  std::lock_guard lock(impl_->mutex);
  impl_->JoinThisThread(stream);
  event = impl_->actors.clock(stream);
}

void RaceChecker::Wait(ActorId stream, const VectorClock& event) {
  std::lock_guard lock(impl_->mutex);
  impl_->JoinThisThread(stream);
  impl_->actors.clock(stream).Join(event);
}

VectorClock RaceChecker::Now(ActorId stream) const {
  std::lock_guard lock(impl_->mutex);
  return impl_->actors.clock(stream);
}

void RaceChecker::AddMemory(const void* data, int64_t bytes, absl::string_view name, bool owned) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto end = begin + static_cast<uintptr_t>(bytes);
  std::lock_guard lock(impl_->mutex);
  if (owned) {
    impl_->loose.Forget(begin, end);
    // A borrow of the address's former memory may still exist.
    impl_->followed.Forget(begin, end);
  } else {
    // What is followed already keeps its history.
    uintptr_t at = begin;
    const auto take = [&](uintptr_t to) {
      if (at < to) impl_->loose.MoveTo(impl_->followed, at, to);
    };
    impl_->coverage.ForEach(begin, end, [&](uintptr_t from, uintptr_t to, const Coverage&) {
      take(from);
      at = to;
    });
    take(end);
  }
  const auto shared_name = std::make_shared<const std::string>(name);
  impl_->coverage.Update(begin, end, [&](uintptr_t, uintptr_t, Coverage& piece) {
    if (piece.empty() || owned) {
      piece.base = begin;
      piece.name = shared_name;
    }
    ++piece.count;
  });
}

void RaceChecker::RemoveMemory(const void* data, int64_t bytes, bool owned) {
  if (bytes <= 0) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const auto end = begin + static_cast<uintptr_t>(bytes);
  std::lock_guard lock(impl_->mutex);
  if (owned) {
    const absl::Status raced = impl_->CheckAccesses(
        impl_->ThisThread(), {"free", {Writes(const_cast<void*>(data), bytes)}});
    raced.IgnoreError();  // reported; there is no stream to fail
    impl_->followed.Forget(begin, end);
  }
  impl_->coverage.Update(begin, end, [&](uintptr_t from, uintptr_t to, Coverage& piece) {
    if (--piece.count > 0) return;
    piece = Coverage();
    impl_->followed.MoveTo(impl_->loose, from, to);
  });
}

}  // namespace brigade::device
