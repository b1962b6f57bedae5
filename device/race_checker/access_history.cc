#include "brigade/device/race_checker/access_history.h"

#include <algorithm>
#include <cstdio>

#include "absl/strings/str_cat.h"

namespace brigade::device::internal {
namespace {

constexpr size_t kReportsKept = 256;

// "adam" on stream "compute" of "rank 0".
std::string Place(const Race::Side& side) {
  return absl::StrCat("\"", side.operation, "\" on ",
                      side.context.empty()
                          ? side.stream
                          : absl::StrCat("stream \"", side.stream, "\" of \"", side.context, "\""));
}

std::string Describe(const Race::Side& side) {
  return absl::StrCat(Place(side), side.write ? " writes" : " reads");
}

}  // namespace

int AccessHistory::AddStream(absl::string_view stream, absl::string_view context) {
  return actors_.AddStream(std::string(stream), std::string(context), MarkUsed{this});
}

int AccessHistory::AddBorrowedStream(absl::string_view stream, absl::string_view context,
                                     std::pair<int, const void*> native) {
  return actors_.AddBorrowedStream(std::string(stream), std::string(context), native,
                                   MarkUsed{this});
}

void AccessHistory::HostAcquire(const VectorClock& clock) {
  VectorClock& known = actors_.clock(ThisThread());
  known.Join(clock);
  untracked_.ForgetOver(known);
}

void AccessHistory::TellOfUndeclared(int stream, const Operation& operation) {
  if (told_of_undeclared_ || !operation.accesses.empty()) return;
  told_of_undeclared_ = true;
  const std::string place =
      Place({std::string(operation.name), actors_.stream(stream), actors_.context(stream)});
  std::fprintf(stderr,
               "race checker: %s declares no accesses, so its races are not seen; name them with "
               "Reads and Writes (device/operation.h), or Reads(nullptr, 0) where there are none. "
               "Others that declare nothing are not named.\n",
               place.c_str());
}

absl::Status AccessHistory::CheckAccesses(int actor, const Operation& operation) {
  PastAccess now;
  now.actor = actor;
  now.tick = actors_.Tick(actor);
  now.side = std::make_shared<const Race::Side>(Race::Side{
      std::string(operation.name), actors_.stream(actor), actors_.context(actor), false});
  const VectorClock& clock = actors_.clock(actor);
  const auto retired = [this](int other) { return actors_.ended(other); };
  std::string message;
  const auto conflict = [&](const PastAccess& past) { Report(past, now, message); };
  for (const Access& access : operation.accesses) {
    if (access.bytes <= 0) continue;
    now.begin = reinterpret_cast<uintptr_t>(access.data);
    now.end = now.begin + static_cast<uintptr_t>(access.bytes);
    now.write = access.write;
    uintptr_t at = now.begin;
    coverage_.ForEach(now.begin, now.end, [&](uintptr_t begin, uintptr_t end, const Coverage&) {
      if (at < begin) untracked_.Add(at, begin, now, clock, retired, conflict);
      tracked_.Add(begin, end, now, clock, retired, conflict);
      at = end;
    });
    if (at < now.end) untracked_.Add(at, now.end, now, clock, retired, conflict);
  }
  return message.empty() ? absl::OkStatus() : absl::FailedPreconditionError(message);
}

void AccessHistory::Report(const PastAccess& past, const PastAccess& now,
                           std::string& first_message) {
  Race race{*past.side, *now.side, ""};
  race.first.write = past.write;
  race.second.write = now.write;
  if (race.second < race.first) std::swap(race.first, race.second);

  const uintptr_t begin = std::max(past.begin, now.begin);
  const uintptr_t end = std::min(past.end, now.end);
  Coverage memory;
  coverage_.ForEach(begin, begin + 1,
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
  if (reported_.contains(pair)) return;
  if (reports_.size() == kReportsKept) {
    ++reports_dropped_;
    return;
  }
  reported_.insert(std::move(pair));
  std::fprintf(stderr, "%s\n", race.message.c_str());
  reports_.push_back(std::move(race));
}

void AccessHistory::AddMemory(uintptr_t begin, uintptr_t end, absl::string_view name, bool owned) {
  if (owned) {
    untracked_.Forget(begin, end);
    // A borrow of the address's former memory may still exist.
    tracked_.Forget(begin, end);
  } else {
    // What is tracked already keeps its history.
    uintptr_t at = begin;
    const auto take = [&](uintptr_t to) {
      if (at < to) untracked_.MoveTo(tracked_, at, to);
    };
    coverage_.ForEach(begin, end, [&](uintptr_t from, uintptr_t to, const Coverage&) {
      take(from);
      at = to;
    });
    take(end);
  }
  const auto shared_name = std::make_shared<const std::string>(name);
  coverage_.Update(begin, end, [&](uintptr_t, uintptr_t, Coverage& piece) {
    if (piece.empty() || owned) {
      piece.base = begin;
      piece.name = shared_name;
    }
    ++piece.count;
  });
}

void AccessHistory::RemoveMemory(uintptr_t begin, uintptr_t end, bool owned) {
  if (owned) {
    const auto bytes = static_cast<int64_t>(end - begin);
    // A race is in the reports; there is no stream to fail.
    CheckAccesses(ThisThread(), {"free", {Writes(reinterpret_cast<void*>(begin), bytes)}})
        .IgnoreError();
    tracked_.Forget(begin, end);
  }
  coverage_.Update(begin, end, [&](uintptr_t from, uintptr_t to, Coverage& piece) {
    if (--piece.count > 0) return;
    piece = Coverage();
    tracked_.MoveTo(untracked_, from, to);
  });
}

void AccessHistory::ClearReports() {
  reports_.clear();
  reported_.clear();
  reports_dropped_ = 0;
}

}  // namespace brigade::device::internal
