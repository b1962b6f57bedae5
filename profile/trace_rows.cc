#include "brigade/profile/trace_rows.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"

namespace brigade::profile {
namespace {

using device::TracedOperation;

constexpr double kSecond = 1e-9;

// Which times streams that are not the main one are in a collective, or work.
class Beside {
 public:
  Beside(absl::Span<const StreamOperations> streams, absl::string_view main,
         const TraceNames& names) {
    for (const StreamOperations& stream : streams) {
      if (stream.stream == main) continue;
      for (const TracedOperation& operation : stream.operations) {
        if (operation.end_ns <= operation.begin_ns) continue;
        const Kind kind = names.kind(operation);
        if (kind == Kind::kCollective) {
          collectives_.push_back({operation.begin_ns, operation.end_ns});
        } else if (kind != Kind::kWait) {
          work_.push_back({operation.begin_ns, operation.end_ns});
        }
      }
    }
    // Collectives count first.
    std::vector<Interval> all = collectives_;
    all.insert(all.end(), work_.begin(), work_.end());
    collectives_ = Union(std::move(collectives_));
    work_ = Union(std::move(all));
  }

  LimitSeconds Split(int64_t begin, int64_t end) const {
    const int64_t in_collectives = Covered(collectives_, begin, end);
    const int64_t in_any = Covered(work_, begin, end);
    LimitSeconds limits = {};
    const auto add = [&](Limit limit, int64_t ns) {
      limits[static_cast<size_t>(limit)] += kSecond * static_cast<double>(ns);
    };
    add(Limit::kNetwork, in_collectives);
    add(Limit::kMemory, in_any - in_collectives);
    add(Limit::kHost, end - begin - in_any);
    return limits;
  }

 private:
  struct Interval {
    int64_t begin, end;
  };

  static std::vector<Interval> Union(std::vector<Interval> intervals) {
    std::sort(intervals.begin(), intervals.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    std::vector<Interval> united;
    for (const Interval& each : intervals) {
      if (!united.empty() && each.begin <= united.back().end) {
        united.back().end = std::max(united.back().end, each.end);
      } else {
        united.push_back(each);
      }
    }
    return united;
  }

  static int64_t Covered(const std::vector<Interval>& united, int64_t begin, int64_t end) {
    auto at = std::upper_bound(united.begin(), united.end(), begin,
                               [](int64_t time, const Interval& each) { return time < each.end; });
    int64_t ns = 0;
    for (; at != united.end() && at->begin < end; ++at) {
      ns += std::min(end, at->end) - std::max(begin, at->begin);
    }
    return ns;
  }

  std::vector<Interval> collectives_, work_;
};

class Rows {
 public:
  void Add(absl::string_view stream, const Place& place, Kind kind, absl::string_view name,
           int64_t ns, int64_t bytes, const LimitSeconds& limits) {
    const auto [at, is_new] =
        index_.try_emplace(Key{stream, place.unit, place.pass, kind, name}, rows_.size());
    if (is_new) {
      rows_.push_back(
          {.stream = std::string(stream), .place = place, .kind = kind, .name = std::string(name)});
    }
    Row& row = rows_[at->second];
    ++row.calls;
    row.seconds += kSecond * static_cast<double>(ns);
    row.bytes += static_cast<double>(bytes);
    for (size_t i = 0; i < limits.size(); ++i) row.limits[i] += limits[i];
  }

  std::vector<Row> Take() { return std::move(rows_); }

 private:
  // Of the trace's own names, which outlive this.
  using Key = std::tuple<absl::string_view, int, Pass, Kind, absl::string_view>;

  std::vector<Row> rows_;
  absl::flat_hash_map<Key, size_t> index_;
};

LimitSeconds All(Limit limit, int64_t ns) {
  LimitSeconds limits = {};
  limits[static_cast<size_t>(limit)] = kSecond * static_cast<double>(ns);
  return limits;
}

}  // namespace

StepMarks FindStep(const StreamOperations& stream, const TraceNames& names) {
  StepMarks marks;
  for (const TracedOperation& operation : stream.operations) {
    if (operation.kind != TracedOperation::Kind::kWork) continue;
    if (names.begins_step(operation.name)) marks.begin_ns = operation.begin_ns;
    if (names.ends_step(operation.name)) {
      marks.end_ns = operation.begin_ns;
      break;
    }
  }
  return marks;
}

std::vector<Row> RowsOf(absl::Span<const StreamOperations> streams, absl::string_view main,
                        int64_t begin_ns, int64_t end_ns, const TraceNames& names) {
  const Beside beside(streams, main, names);
  Rows rows;
  for (const StreamOperations& stream : streams) {
    const bool is_main = stream.stream == main;
    Place place;
    int64_t until = begin_ns;
    const auto idle = [&](int64_t next) {
      if (!is_main || next <= until) return;
      rows.Add(stream.stream, place, Kind::kIdle, "idle", next - until, 0,
               All(Limit::kHost, next - until));
      until = next;
    };
    for (const TracedOperation& operation : stream.operations) {
      const std::optional<Place> mark = names.place(operation.name);
      // Also one before the step, of what goes on in it.
      if (is_main && mark.has_value() && operation.begin_ns < begin_ns) place = *mark;
      if (operation.end_ns <= begin_ns || operation.begin_ns >= end_ns) continue;
      // Of the main stream the part that is in the step; of others those that begin in it.
      if (!is_main && operation.begin_ns < begin_ns) continue;
      const int64_t begin = std::max(operation.begin_ns, begin_ns);
      const int64_t end = is_main ? std::min(operation.end_ns, end_ns) : operation.end_ns;
      idle(begin);
      const int64_t ns = end - begin;
      if (is_main && mark.has_value()) {
        place = *mark;
        idle(end);
      } else if (const Kind kind = names.kind(operation); kind == Kind::kWait) {
        rows.Add(stream.stream, place, kind, operation.name, ns, 0,
                 is_main ? beside.Split(begin, end) : LimitSeconds());
      } else if (kind == Kind::kIdle) {
        idle(end);
      } else {
        rows.Add(stream.stream, place, kind, operation.name, ns, operation.bytes,
                 kind == Kind::kCollective ? All(Limit::kNetwork, ns) : LimitSeconds());
      }
      until = std::max(until, end);
    }
    idle(end_ns);
  }
  return rows.Take();
}

}  // namespace brigade::profile
