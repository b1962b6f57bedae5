// What a store promises while all goes well: bytes, versions, operations on streams.

#include "brigade/device/file/file_store.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "brigade/device/file/crc32c.h"
#include "brigade/device/file/store_table.h"
#include "brigade/device/tracing/tracer.h"
#include "brigade/tests/device/file/store_fixture.h"
#include "gmock/gmock.h"

namespace brigade::device {
namespace {

using ::brigade::testing::StatusIs;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

BRIGADE_FILE_STORE_TESTS(FileStoreTest);

// Around the borders of sectors, blocks of the file, staging, blocks in flight, and all in flight.
const std::vector<int64_t> kSizes = {0,     1,     31,        511,     512,   513,    4095,
                                     4096,  4097,  8192,      16383,   16384, 16385,  65535,
                                     65536, 65537, 16384 * 5, 100'000, 12345, 300'001};

TEST_P(FileStoreTest, GivesBackTheBytesOfAnySizeFromAnyAddress) {
  for (const bool sums : {false, true}) {
    options_.checksums = sums;
    const auto store = Create(kSizes);
    for (const int64_t shift : {0, 1, 4, 256, 512, 4095}) {
      SCOPED_TRACE(absl::StrCat(shift, " ", sums));
      for (int64_t i = 0; i < store->chunks(); ++i) {
        const std::vector<char> bytes = Bytes(kSizes[static_cast<size_t>(i)], 7 * i + shift);
        // A border of other bytes on both sides.
        const size_t size = bytes.size(), begin = static_cast<size_t>(4096 + shift);
        const absl::Span<char> memory = Memory(4096 * 3 + store->chunk_bytes(i));
        const absl::Span<char> part = memory.subspan(begin, size);
        std::copy(bytes.begin(), bytes.end(), part.begin());
        EXPECT_OK(store->Write(*stream_, i, part));
        EXPECT_OK(store->Commit(*stream_));
        EXPECT_OK(stream_->FillBytes(memory.data(), 0x55, static_cast<int64_t>(memory.size())));
        EXPECT_OK(store->Read(*stream_, i, part));
        ASSERT_OK(stream_->Synchronize());
        EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.begin())) << i;
        const auto is_border = [](char byte) { return byte == 0x55; };
        EXPECT_TRUE(std::all_of(memory.begin(), memory.begin() + begin, is_border)) << i;
        EXPECT_TRUE(std::all_of(memory.begin() + begin + size, memory.end(), is_border)) << i;
        buffers_.clear();
      }
    }
    EXPECT_EQ(store->bytes_read(), store->bytes_written());
  }
}

TEST_P(FileStoreTest, GivesAnyPartOfAChunkToAnyAddress) {
  const auto store = Create({5, 200'001});
  const std::vector<char> bytes = Bytes(200'001, 3);
  ASSERT_OK(WriteNow(*store, 1, bytes));
  ASSERT_OK(CommitNow(*store));
  const int64_t before = store->bytes_read();
  int64_t read = 0;
  for (const int64_t shift : {0, 1, 512, 4095}) {
    const absl::Span<char> memory = Memory(3 * 4096 + store->chunk_bytes(1));
    for (const int64_t offset : {0, 1, 511, 512, 4095, 4096, 4097, 65'535, 131'072, 200'000}) {
      for (const int64_t size : {0, 1, 511, 4096, 65'537, 70'001, 200'001}) {
        if (offset + size > store->chunk_bytes(1)) continue;
        SCOPED_TRACE(absl::StrCat(shift, " ", offset, " ", size));
        std::fill(memory.begin(), memory.end(), '\x55');
        const auto begin = static_cast<size_t>(4096 + shift), count = static_cast<size_t>(size);
        const absl::Span<char> part = memory.subspan(begin, count);
        EXPECT_OK(store->ReadPart(*stream_, 1, offset, part));
        ASSERT_OK(stream_->Synchronize());
        EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.begin() + offset));
        const auto is_border = [](char byte) { return byte == 0x55; };
        EXPECT_TRUE(std::all_of(memory.begin(), part.begin(), is_border));
        EXPECT_TRUE(std::all_of(part.end(), memory.end(), is_border));
        read += size;
      }
    }
  }
  EXPECT_EQ(store->bytes_read() - before, read);
  const absl::Span<char> memory = Memory(100);
  constexpr auto kInvalid = absl::StatusCode::kInvalidArgument;
  EXPECT_THAT(store->ReadPart(*stream_, 1, 199'902, memory),
              StatusIs(kInvalid, HasSubstr("has 200001 bytes, not 100 from byte 199902 on")));
  EXPECT_THAT(store->ReadPart(*stream_, 1, -1, memory), StatusIs(kInvalid, HasSubstr("chunk")));
  EXPECT_THAT(store->ReadPart(*stream_, 2, 0, memory), StatusIs(kInvalid, HasSubstr("chunk")));
  EXPECT_OK(store->ReadPart(*stream_, 0, 0, memory.first(3)));
  EXPECT_THAT(stream_->Synchronize(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("it was never committed")));
}

TEST_P(FileStoreTest, AnErrorSaysTheChunksName) {
  const auto store = Create({5});
  store->NameChunks([](int64_t chunk) { return absl::StrCat("what ", chunk, " holds"); });
  EXPECT_OK(store->Read(*stream_, 0, Memory(5)));
  EXPECT_THAT(stream_->Synchronize(), StatusIs(absl::StatusCode::kFailedPrecondition,
                                               HasSubstr("cannot read chunk 0 (what 0 holds) of")));
}

TEST_P(FileStoreTest, AChecksumIsThatOfTheBytesHoweverTheyAreCut) {
  options_.checksums = true;
  options_.crash_safety = CrashSafety::kProcess;
  const std::vector<char> bytes = Bytes(200'001, 5);
  {
    const auto store = Create({200'001});
    ASSERT_OK(WriteNow(*store, 0, bytes));
    ASSERT_OK(CommitNow(*store));
  }
  // Commit 1 is in the second copy of the table.
  std::ifstream file(directory_.path() + "/state", std::ios::binary);
  std::vector<char> table(4096);
  file.seekg(4096).read(table.data(), 4096);
  internal::ChunkVersion version;
  ASSERT_OK(internal::ReadTable({table.data(), table.size()}, internal::LayoutSum({200'001}),
                                absl::MakeSpan(&version, 1)));
  EXPECT_EQ(version.sum, Crc32c({bytes.data(), bytes.size()}));
  for (const int64_t block_bytes : {4096, 8192, 1 << 20}) {
    options_.block_bytes = block_bytes;
    const auto store = FileStore::Open(options_, "state", {200'001}).value();
    const absl::Span<char> part = Memory(200'002).subspan(1);
    ASSERT_OK(store->Read(*stream_, 0, part));
    ASSERT_OK(stream_->Synchronize());
    EXPECT_TRUE(std::equal(part.begin(), part.end(), bytes.begin()));
  }
}

TEST_P(FileStoreTest, AStoreOfNoChunksCommits) {
  const auto store = Create({});
  EXPECT_OK(CommitNow(*store));
  EXPECT_EQ(store->commits(), 1);
}

TEST_P(FileStoreTest, ReadsWhatWasCommittedWhateverIsWritten) {
  const auto store = Create({10'000});
  const auto first = Bytes(10'000, 1), second = Bytes(10'000, 2);
  EXPECT_OK(store->Read(*stream_, 0, Memory(10'000)));
  EXPECT_THAT(stream_->Synchronize(),
              StatusIs(absl::StatusCode::kFailedPrecondition, HasSubstr("never committed")));
  ASSERT_OK(stream_->Reset());

  ASSERT_OK(WriteNow(*store, 0, first));
  ASSERT_OK(CommitNow(*store));
  ASSERT_OK(WriteNow(*store, 0, second));
  EXPECT_EQ(ReadNow(*store, 0).value(), first);
  ASSERT_OK(CommitNow(*store));
  EXPECT_EQ(ReadNow(*store, 0).value(), second);
  EXPECT_EQ(store->commits(), 2);
}

TEST_P(FileStoreTest, SkipMakesOperationsDoNothingWhenTheyRun) {
  const auto store = Create({5000});
  const auto first = Bytes(5000, 1), second = Bytes(5000, 2);
  ASSERT_OK(WriteNow(*store, 0, first));
  ASSERT_OK(CommitNow(*store));
  int32_t skip = 0;
  Gate gate;
  ASSERT_OK(Block(*stream_, gate));
  const absl::Span<char> memory = Memory(5000);
  std::fill(memory.begin(), memory.end(), 'x');
  EXPECT_OK(store->Write(*stream_, 0, second));
  EXPECT_OK(store->Read(*stream_, 0, memory, &skip));
  EXPECT_OK(store->Write(*stream_, 0, memory, &skip));
  EXPECT_OK(store->Commit(*stream_, &skip));
  // It was enqueued as 0.
  skip = 1;
  gate.Open();
  ASSERT_OK(stream_->Synchronize());
  EXPECT_EQ(memory[17], 'x');
  EXPECT_EQ(store->commits(), 1);
  // A skipped commit abandons: the write is no part of the next one.
  ASSERT_OK(CommitNow(*store));
  EXPECT_EQ(ReadNow(*store, 0).value(), first);

  skip = 0;
  EXPECT_OK(store->Write(*stream_, 0, second, &skip));
  EXPECT_OK(store->Commit(*stream_, &skip));
  EXPECT_OK(stream_->Synchronize());
  EXPECT_EQ(ReadNow(*store, 0).value(), second);
}

// Random steps, against the definition: what is committed, and what waits.
TEST_P(FileStoreTest, VersionsAreThoseOfAModel) {
  const std::vector<int64_t> sizes = {1, 4096, 20'000, 70'000};
  for (const CrashSafety safety : {CrashSafety::kNone, CrashSafety::kProcess}) {
    options_.crash_safety = safety;
    options_.checksums = safety == CrashSafety::kProcess;
    std::filesystem::remove(directory_.path() + "/state");
    auto store = Create(sizes);
    std::vector<std::optional<std::vector<char>>> current(sizes.size()), written(sizes.size());
    int64_t commits = 0;
    std::mt19937 random(17);
    for (int i = 0; i < 400; ++i) {
      const size_t c = random() % sizes.size();
      const auto chunk = static_cast<int64_t>(c);
      switch (random() % 8) {
        case 0:
        case 1:
        case 2:
          written[c] = Bytes(sizes[c], static_cast<uint64_t>(i));
          ASSERT_OK(WriteNow(*store, chunk, *written[c]));
          break;
        case 3:
          ASSERT_OK(CommitNow(*store));
          ++commits;
          for (size_t k = 0; k < sizes.size(); ++k) {
            if (written[k].has_value()) current[k] = std::exchange(written[k], std::nullopt);
          }
          break;
        case 4:
          ASSERT_OK(store->Abandon(*stream_));
          std::fill(written.begin(), written.end(), std::nullopt);
          break;
        case 5:
          if (safety == CrashSafety::kNone) break;
          // The process ends, another one goes on.
          store = nullptr;
          store = FileStore::Open(options_, "state", sizes).value();
          std::fill(written.begin(), written.end(), std::nullopt);
          break;
        default:
          if (!current[c].has_value()) break;
          ASSERT_EQ(ReadNow(*store, chunk).value(), *current[c]) << i;
      }
      ASSERT_EQ(store->commits(), commits);
    }
    EXPECT_GT(commits, 10);
  }
}

TEST_P(FileStoreTest, TheRaceCheckerNamesWhatNoEventOrders) {
  RaceChecker checker;
  auto context = CreateContext(CheckedOptions(checker));
  auto files = context->CreateStream("files").value();
  auto compute = context->CreateStream("compute").value();
  auto event = context->CreateEvent("done").value();
  Buffer buffer = context->Allocate(4096, Purpose::kOptimizerState, "ring").value();
  const absl::Span<char> memory = buffer.as<char>();
  const auto touch = [&](Access access) {
    return compute->Enqueue({"adam", {access}}, [](ThreadPool&) { return absl::OkStatus(); });
  };
  const auto races = [&] {
    // What comes after it is ordered behind it.
    EXPECT_OK(files->Record(*event));
    EXPECT_OK(compute->Wait(*event));
    EXPECT_OK(compute->Record(*event));
    EXPECT_OK(files->Wait(*event));
    std::vector<std::string> pairs;
    for (const Race& race : checker.reports()) {
      pairs.push_back(absl::StrCat(race.first.operation, " ", race.second.operation));
    }
    checker.ClearReports();
    // One pair may meet in two places.
    std::sort(pairs.begin(), pairs.end());
    pairs.erase(std::unique(pairs.begin(), pairs.end()), pairs.end());
    EXPECT_OK(files->Reset());
    EXPECT_OK(compute->Reset());
    return pairs;
  };
  const auto store = Create({4096, 4096});
  ASSERT_OK(store->Write(*files, 0, memory));
  ASSERT_OK(touch(Reads(memory.data(), 4096)));
  EXPECT_THAT(races(), ElementsAre());
  ASSERT_OK(store->Write(*files, 0, memory));
  ASSERT_OK(touch(Writes(memory.data(), 4096)));
  EXPECT_THAT(races(), ElementsAre("adam file_write"));
  ASSERT_OK(store->Commit(*files));
  ASSERT_OK(store->Read(*files, 0, memory));
  ASSERT_OK(touch(Reads(memory.data() + 4095, 1)));
  EXPECT_THAT(races(), ElementsAre("adam file_read"));

  // Of the store itself.
  Buffer other = context->Allocate(4096, Purpose::kOptimizerState, "other").value();
  ASSERT_OK(files->FillBytes(other.data(), 1, 4096));
  EXPECT_THAT(races(), ElementsAre());
  ASSERT_OK(store->Read(*files, 0, memory));
  ASSERT_OK(store->Write(*compute, 0, other.as<char>()));
  EXPECT_THAT(races(), ElementsAre());
  ASSERT_OK(store->Read(*files, 0, memory));
  ASSERT_OK(store->Commit(*compute));
  EXPECT_THAT(races(), ElementsAre("file_commit file_read"));
  ASSERT_OK(store->Write(*files, 0, memory));
  ASSERT_OK(store->Commit(*compute));
  EXPECT_THAT(races(), ElementsAre("file_commit file_write"));
  ASSERT_OK(store->Write(*files, 1, memory));
  ASSERT_OK(store->Abandon(*compute));
  EXPECT_THAT(races(), ElementsAre("file_abandon file_write"));
  ASSERT_OK(store->Write(*files, 1, memory));
  ASSERT_OK(store->Write(*compute, 1, other.as<char>()));
  EXPECT_THAT(races(), ElementsAre("file_write file_write"));
  ASSERT_OK(store->Write(*files, 0, memory));
  ASSERT_OK(store->Write(*compute, 1, other.as<char>()));
  EXPECT_THAT(races(), ElementsAre());
  int32_t skip = 0;
  ASSERT_OK(store->Commit(*files, &skip));
  ASSERT_OK(touch(Writes(&skip, sizeof(skip))));
  EXPECT_THAT(races(), ElementsAre("adam file_commit"));
}

TEST_P(FileStoreTest, TheTracerSeesTheOperations) {
  Tracer tracer;
  ContextOptions options = CpuOptions();
  options.tracer = &tracer;
  auto context = CreateContext(options);
  auto stream = context->CreateStream("files").value();
  const auto store = Create({100'000});
  std::vector<char> bytes(100'000);
  ASSERT_OK(store->Write(*stream, 0, bytes));
  ASSERT_OK(store->Commit(*stream));
  ASSERT_OK(store->Read(*stream, 0, absl::MakeSpan(bytes)));
  ASSERT_OK(store->Abandon(*stream));
  ASSERT_OK(stream->Synchronize());
  std::vector<std::string> names;
  const std::vector<TracedStream> traced = tracer.Take();
  for (const TracedOperation& operation : traced.at(0).operations) {
    names.emplace_back(operation.name);
  }
  EXPECT_THAT(names, ElementsAre("file_write", "file_commit", "file_read", "file_abandon"));
}

TEST_P(FileStoreTest, RefusesWhatItHasNoRoomFor) {
  const auto store = Create({100, 200});
  std::vector<char> bytes(100);
  for (const int64_t chunk : {-1, 2}) {
    EXPECT_THAT(
        store->Read(*stream_, chunk, absl::MakeSpan(bytes)),
        StatusIs(absl::StatusCode::kInvalidArgument,
                 AllOf(HasSubstr(absl::StrCat("chunk ", chunk)), HasSubstr("which has 2"))));
  }
  EXPECT_THAT(
      store->Write(*stream_, 1, bytes),
      StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("has 200 bytes, the memory has 100")));
  EXPECT_OK(stream_->status());
}

TEST_P(FileStoreTest, SaysWhatItTookAndCounts) {
  const auto store = Create({100, 5000});
  EXPECT_THAT(store->description(),
              AllOf(HasSubstr(std::string(ToString(GetParam().engine))),
                    HasSubstr(GetParam().direct ? "direct, aligned to" : "buffered"),
                    HasSubstr("2 x 4 blocks of 16384 bytes in flight")));
  EXPECT_EQ(store->engine(), GetParam().engine);
  EXPECT_EQ(store->direct(), GetParam().direct);
  EXPECT_EQ(FileStoreBytes({100, 5000}), 2 * 4096 + 2 * 4096 + 2 * 8192);
  EXPECT_EQ(FileStoreMemoryBytes(options_, {100, 5000}), 2 * 4 * 65536 + 4096);
  ASSERT_OK(WriteNow(*store, 0, Bytes(100, 1)));
  ASSERT_OK(WriteNow(*store, 1, Bytes(5000, 1)));
  ASSERT_OK(CommitNow(*store));
  ASSERT_OK(ReadNow(*store, 1));
  EXPECT_EQ(store->bytes_written(), 5100);
  EXPECT_EQ(store->bytes_read(), 5000);
}

TEST_P(FileStoreTest, AFileWithoutANameIsGoneWithItsStore) {
  const auto store = Create({5000});
  EXPECT_TRUE(std::filesystem::is_empty(directory_.path()));
  EXPECT_EQ(store->path(), directory_.path() + "/state");
  options_.crash_safety = CrashSafety::kProcess;
  { const auto named = Create({5000}); }
  EXPECT_EQ(std::filesystem::file_size(directory_.path() + "/state"),
            static_cast<uint64_t>(FileStoreBytes({5000})));
  EXPECT_THAT(FileStore::Create(options_, "state", {5000}),
              StatusIs(absl::StatusCode::kAlreadyExists, HasSubstr("/state")));
}

// Odd sizes at odd addresses go through the blocks: the memory next to theirs stays as it was.
TEST_P(FileStoreTest, TakesMemoryOfTheCallers) {
  options_.crash_safety = CrashSafety::kProcess;
  const std::vector<int64_t> sizes = {5000, 70'001};
  const int64_t bytes = FileStoreMemoryBytes(options_, sizes);
  EXPECT_EQ(bytes, 2 * 4 * 65536 + 2 * 4096);
  // At an odd address too.
  constexpr int64_t kBefore = 77;
  const absl::Span<char> memory = Memory(kBefore + bytes + 4096);
  std::fill(memory.begin(), memory.end(), '-');
  const absl::Span<char> given = memory.subspan(kBefore, static_cast<size_t>(bytes));
  {
    const auto store = FileStore::Create(options_, "state", sizes, {.memory = given}).value();
    ASSERT_OK(WriteNow(*store, 0, Bytes(5000, 1)));
    ASSERT_OK(WriteNow(*store, 1, Bytes(70'001, 2)));
    ASSERT_OK(CommitNow(*store));
  }
  const auto store = FileStore::Open(options_, "state", sizes, {.memory = given}).value();
  EXPECT_EQ(ReadNow(*store, 0).value(), Bytes(5000, 1));
  EXPECT_EQ(ReadNow(*store, 1).value(), Bytes(70'001, 2));
  const auto is_untouched = [](char c) { return c == '-'; };
  EXPECT_TRUE(std::all_of(memory.begin(), given.begin(), is_untouched));
  EXPECT_TRUE(std::all_of(given.end(), memory.end(), is_untouched));
  EXPECT_FALSE(std::all_of(given.begin(), given.end(), is_untouched));

  EXPECT_THAT(FileStore::Create(options_, "less", sizes, {.memory = given.subspan(1)}),
              StatusIs(absl::StatusCode::kInvalidArgument,
                       "FileBackend::memory has 532479 bytes; needed "
                       "are 532480"));
}

// More operations at a time than there are rings wait for each other.
TEST_P(FileStoreTest, ManyStreamsShareFewRings) {
  constexpr int64_t kStreams = 6, kBytes = 50'000;
  const auto store = Create(std::vector<int64_t>(kStreams, kBytes));
  std::vector<std::unique_ptr<Stream>> streams;
  std::vector<absl::Span<char>> memory;
  for (int64_t i = 0; i < kStreams; ++i) {
    streams.push_back(context_->CreateStream(absl::StrCat("files ", i)).value());
    memory.push_back(Memory(kBytes));
    const auto bytes = Bytes(kBytes, static_cast<uint64_t>(i));
    std::copy(bytes.begin(), bytes.end(), memory.back().begin());
    for (int k = 0; k < 5; ++k) ASSERT_OK(store->Write(*streams.back(), i, memory.back()));
  }
  for (const auto& stream : streams) ASSERT_OK(stream->Synchronize());
  ASSERT_OK(CommitNow(*store));
  for (size_t i = 0; i < kStreams; ++i) {
    std::fill(memory[i].begin(), memory[i].end(), '-');
    for (int k = 0; k < 5; ++k) {
      ASSERT_OK(store->Read(*streams[i], static_cast<int64_t>(i), memory[i]));
    }
  }
  for (size_t i = 0; i < kStreams; ++i) {
    ASSERT_OK(streams[i]->Synchronize());
    const auto bytes = Bytes(kBytes, i);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), memory[i].begin())) << i;
  }
}

TEST(FileOptionsTest, NamesTheBadOption) {
  const auto refuses = [](const auto& change, const std::string& text) {
    FileOptions options = {.directory = "/tmp"};
    change(options);
    EXPECT_THAT(options.Validate(), StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr(text)));
    EXPECT_THAT(FileStore::Create(options, "x", {}), StatusIs(absl::StatusCode::kInvalidArgument));
  };
  refuses([](FileOptions& o) { o.directory = ""; }, "directory is empty");
  refuses([](FileOptions& o) { o.block_bytes = 0; }, "block_bytes is 0");
  refuses([](FileOptions& o) { o.block_bytes = 5000; }, "no multiple of 4096");
  refuses([](FileOptions& o) { o.block_bytes = -4096; }, "block_bytes is -4096");
  refuses([](FileOptions& o) { o.block_bytes = int64_t{1} << 31; }, "not from 1 to");
  refuses([](FileOptions& o) { o.queue_depth = 0; }, "queue_depth is 0");
  refuses([](FileOptions& o) { o.queue_depth = 1025; }, "queue_depth is 1025");
  refuses([](FileOptions& o) { o.operations = 0; }, "operations is 0");
  refuses([](FileOptions& o) { o.engine = static_cast<FileEngineKind>(9); }, "engine is 9");
  refuses([](FileOptions& o) { o.crash_safety = static_cast<CrashSafety>(9); }, "safety is 9");
}

TEST(FileOptionsTest, BadChunksAndNamesAreRefused) {
  TestDirectory directory;
  const FileOptions options = {.directory = directory.path()};
  EXPECT_THAT(FileStore::Create(options, "x", {1, -1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chunk 1")));
  EXPECT_THAT(FileStore::Create(options, "x", {int64_t{1} << 60, 1}),
              StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("chunk 1")));
  for (const std::string name : {"", ".", "..", "a/b"}) {
    EXPECT_THAT(FileStore::Create(options, name, {1}),
                StatusIs(absl::StatusCode::kInvalidArgument, HasSubstr("no name of a file")));
  }
  EXPECT_THAT(FileStore::Create({.directory = directory.path() + "/no"}, "x", {1}),
              StatusIs(absl::StatusCode::kNotFound, HasSubstr("/no/x")));
}

}  // namespace
}  // namespace brigade::device
