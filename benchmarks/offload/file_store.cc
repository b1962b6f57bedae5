// Reading and writing chunks of a file store, one after the other and both at once, beside plain
// loops of pread and pwrite over as many bytes. benchmarks/offload/README.md says how to read it.

#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "brigade/benchmarks/common/figures.h"
#include "brigade/benchmarks/common/interleave.h"
#include "brigade/benchmarks/common/run_main.h"
#include "brigade/benchmarks/offload/plain_loops.h"
#include "brigade/device/byte_count.h"
#include "brigade/device/context.h"
#include "brigade/device/file/file_store.h"
#include "brigade/device/status_macros.h"

ABSL_FLAG(std::string, folder, "", "on the disk to measure; the files have no names");
ABSL_FLAG(brigade::device::ByteCount, chunk_bytes, {int64_t{12} << 22},
          "of a chunk: 4 Mi elements of 12 bytes");
ABSL_FLAG(int, chunks, 8, "read and written in each turn");
ABSL_FLAG(int, rounds, 9, "turns of each contestant; medians count");
ABSL_FLAG(brigade::device::ByteCount, block_bytes, {brigade::device::FileOptions().block_bytes},
          "FileOptions::block_bytes");
ABSL_FLAG(int, queue_depth, brigade::device::FileOptions().queue_depth,
          "FileOptions::queue_depth, and threads of the plain loop of blocks");
ABSL_FLAG(bool, direct, true, "past the page cache");
ABSL_FLAG(bool, checksums, false, "FileOptions::checksums");
ABSL_FLAG(std::string, json, "", "also write the figures to this file");

namespace brigade::benchmarks {
namespace {

constexpr int kReads = 1, kWrites = 2;

// What takes turns: reads, writes, or both at once, of all chunks.
class Contestant {
 public:
  virtual ~Contestant() = default;
  virtual absl::Status Run(int what) = 0;
};

// Memory of two chunks for reads and two for writes: what a ring has.
class Ring {
 public:
  static absl::StatusOr<Ring> Create(device::Context& context, int64_t chunk_bytes) {
    Ring ring;
    for (device::Buffer& buffer : ring.buffers_) {
      BRIGADE_ASSIGN_OR_RETURN(buffer,
                               context.Allocate(chunk_bytes, device::Purpose::kScratch, "ring"));
    }
    return ring;
  }
  absl::Span<char> Of(bool write, int chunk) const {
    return buffers_[(write ? 2 : 0) + chunk % 2].as<char>();
  }

 private:
  device::Buffer buffers_[4];
};

class Store final : public Contestant {
 public:
  static absl::StatusOr<std::unique_ptr<Contestant>> Create(device::FileEngineKind engine,
                                                            device::Context& context,
                                                            const Ring& ring) {
    device::FileOptions options;
    options.directory = absl::GetFlag(FLAGS_folder);
    options.engine = engine;
    options.direct = absl::GetFlag(FLAGS_direct);
    options.block_bytes = absl::GetFlag(FLAGS_block_bytes).value;
    options.queue_depth = absl::GetFlag(FLAGS_queue_depth);
    options.checksums = absl::GetFlag(FLAGS_checksums);
    const std::vector<int64_t> sizes(static_cast<size_t>(absl::GetFlag(FLAGS_chunks)),
                                     absl::GetFlag(FLAGS_chunk_bytes).value);
    auto store = std::make_unique<Store>(ring);
    BRIGADE_ASSIGN_OR_RETURN(store->store_, device::FileStore::Create(options, "store", sizes));
    BRIGADE_ASSIGN_OR_RETURN(store->reads_, context.CreateStream("reads"));
    BRIGADE_ASSIGN_OR_RETURN(store->writes_, context.CreateStream("writes"));
    std::cout << "# " << store->store_->description() << "\n";
    // Both slots have been written before the first turn.
    for (int i = 0; i < 2; ++i) BRIGADE_RETURN_IF_ERROR(store->Run(kWrites));
    return store;
  }
  explicit Store(const Ring& ring) : ring_(ring) {}

  absl::Status Run(int what) override {
    for (int chunk = 0; chunk < static_cast<int>(store_->chunks()); ++chunk) {
      if ((what & kReads) != 0) {
        BRIGADE_RETURN_IF_ERROR(store_->Read(*reads_, chunk, ring_.Of(false, chunk)));
      }
      if ((what & kWrites) != 0) {
        BRIGADE_RETURN_IF_ERROR(store_->Write(*writes_, chunk, ring_.Of(true, chunk)));
      }
    }
    BRIGADE_RETURN_IF_ERROR(reads_->Synchronize());
    // Behind both, as events would order it.
    if ((what & kWrites) != 0) {
      BRIGADE_RETURN_IF_ERROR(writes_->Synchronize());
      BRIGADE_RETURN_IF_ERROR(store_->Commit(*writes_));
    }
    return writes_->Synchronize();
  }

 private:
  const Ring& ring_;
  std::unique_ptr<device::FileStore> store_;
  std::unique_ptr<device::Stream> reads_, writes_;
};

class PlainContestant final : public Contestant {
 public:
  static absl::StatusOr<std::unique_ptr<Contestant>> Create(int threads, int64_t bytes_at_once) {
    BRIGADE_ASSIGN_OR_RETURN(
        auto loops, PlainLoops::Create({.folder = absl::GetFlag(FLAGS_folder),
                                        .chunk_bytes = absl::GetFlag(FLAGS_chunk_bytes).value,
                                        .chunks = absl::GetFlag(FLAGS_chunks),
                                        .direct = absl::GetFlag(FLAGS_direct),
                                        .threads = threads,
                                        .bytes_at_once = bytes_at_once}));
    return std::make_unique<PlainContestant>(std::move(loops));
  }
  explicit PlainContestant(std::unique_ptr<PlainLoops> loops) : loops_(std::move(loops)) {}

  absl::Status Run(int what) override {
    return loops_->Run((what & kReads) != 0, (what & kWrites) != 0);
  }

 private:
  std::unique_ptr<PlainLoops> loops_;
};

// Of a commit of one chunk that was just written.
absl::StatusOr<double> CommitSeconds(device::CrashSafety safety, device::Context& context,
                                     const Ring& ring) {
  device::FileOptions options;
  options.directory = absl::GetFlag(FLAGS_folder);
  options.direct = absl::GetFlag(FLAGS_direct);
  options.crash_safety = safety;
  const std::string name = absl::StrCat("commits-", ::getpid());
  const std::vector<int64_t> sizes = {absl::GetFlag(FLAGS_chunk_bytes).value};
  BRIGADE_ASSIGN_OR_RETURN(const auto store, device::FileStore::Create(options, name, sizes));
  // At the end: a store notices that its file was removed.
  const auto unlink = absl::MakeCleanup([path = store->path()] { ::unlink(path.c_str()); });
  BRIGADE_ASSIGN_OR_RETURN(const auto stream, context.CreateStream("commits"));
  Seconds seconds;
  for (int i = 0; i < absl::GetFlag(FLAGS_rounds); ++i) {
    BRIGADE_RETURN_IF_ERROR(store->Write(*stream, 0, ring.Of(true, 0)));
    BRIGADE_RETURN_IF_ERROR(stream->Synchronize());
    const auto begin = std::chrono::steady_clock::now();
    BRIGADE_RETURN_IF_ERROR(store->Commit(*stream));
    BRIGADE_RETURN_IF_ERROR(stream->Synchronize());
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  return Median(seconds);
}

absl::Status Main() {
  if (absl::GetFlag(FLAGS_folder).empty()) {
    return absl::InvalidArgumentError("--folder names none");
  }
  device::ContextOptions options;
  options.name = "rank 0";
  options.checks = false;
  BRIGADE_ASSIGN_OR_RETURN(auto context, device::Context::Create(options));
  const int64_t chunk_bytes = absl::GetFlag(FLAGS_chunk_bytes).value;
  BRIGADE_ASSIGN_OR_RETURN(const Ring ring, Ring::Create(*context, chunk_bytes));
  struct Entry {
    std::string name;
    std::unique_ptr<Contestant> contestant;
    // Of reads, writes and both.
    Seconds seconds[3];
  };
  // Two plain loops, of which the faster one is the ceiling, and the engines.
  std::vector<Entry> entries;
  const auto add = [&](std::string name,
                       absl::StatusOr<std::unique_ptr<Contestant>> contestant) -> absl::Status {
    if (!contestant.ok()) return contestant.status();
    entries.push_back({std::move(name), *std::move(contestant), {}});
    return absl::OkStatus();
  };
  BRIGADE_RETURN_IF_ERROR(add("plain chunks", PlainContestant::Create(1, chunk_bytes)));
  BRIGADE_RETURN_IF_ERROR(
      add("plain blocks", PlainContestant::Create(absl::GetFlag(FLAGS_queue_depth),
                                                  absl::GetFlag(FLAGS_block_bytes).value)));
  for (const auto engine : {device::FileEngineKind::kIoUring, device::FileEngineKind::kThreads}) {
    const absl::Status added =
        add(std::string(ToString(engine)), Store::Create(engine, *context, ring));
    if (!added.ok()) std::cout << "# without " << ToString(engine) << ": " << added << "\n";
  }

  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    for (const int what : {kReads, kWrites, kReads | kWrites}) {
      for (size_t i = 0; i < entries.size(); ++i) {
        Entry& entry = entries[round % 2 == 0 ? i : entries.size() - 1 - i];
        const auto begin = std::chrono::steady_clock::now();
        BRIGADE_RETURN_IF_ERROR(entry.contestant->Run(what));
        entry.seconds[what - 1].push_back(
            std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
      }
    }
  }

  const double bytes =
      static_cast<double>(chunk_bytes) * static_cast<double>(absl::GetFlag(FLAGS_chunks));
  std::cout << absl::StrFormat(
      "# GB/s of %d chunks of %d bytes; both: of reads and writes together\n",
      absl::GetFlag(FLAGS_chunks), chunk_bytes);
  std::cout << absl::StrFormat("%-14s %8s %8s %8s %12s\n", "", "read", "write", "both",
                               "both of plain");
  Figures figures;
  const auto both = [&](size_t i) { return Median(entries[i].seconds[2]); };
  const Entry& ceiling = entries[both(0) <= both(1) ? 0 : 1];
  for (const Entry& entry : entries) {
    const double of_plain = MedianRatio(ceiling.seconds[2], entry.seconds[2]);
    std::cout << absl::StrFormat("%-14s %8.2f %8.2f %8.2f %12.3f\n", entry.name,
                                 bytes * 1e-9 / Median(entry.seconds[0]),
                                 bytes * 1e-9 / Median(entry.seconds[1]),
                                 2 * bytes * 1e-9 / Median(entry.seconds[2]), of_plain);
    if (&entry - entries.data() >= 2) {
      figures.Add(absl::StrCat(entry.name, "_of_plain"), of_plain);
    }
  }
  for (const auto safety :
       {device::CrashSafety::kNone, device::CrashSafety::kProcess, device::CrashSafety::kMachine}) {
    BRIGADE_ASSIGN_OR_RETURN(const double seconds, CommitSeconds(safety, *context, ring));
    std::cout << absl::StrFormat("a commit, crash safety %s: %.3f ms\n", ToString(safety),
                                 seconds * 1e3);
  }
  return figures.Write(absl::GetFlag(FLAGS_json));
}

}  // namespace
}  // namespace brigade::benchmarks

int main(int argc, char** argv) {
  return brigade::benchmarks::RunMain(argc, argv, "a file store beside plain loops",
                                      brigade::benchmarks::Main);
}
