#include "brigade/device/file/file_store.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "brigade/device/address_registry.h"
#include "brigade/device/file/aligned_memory.h"
#include "brigade/device/file/engines.h"
#include "brigade/device/file/file_size_signal.h"
#include "brigade/device/file/file_transfer.h"
#include "brigade/device/file/store_file.h"
#include "brigade/device/file/store_table.h"
#include "brigade/device/file/store_versions.h"
#include "brigade/device/operation.h"
#include "brigade/device/printable.h"
#include "brigade/device/status_macros.h"
#include "brigade/device/threads/mutex.h"

namespace brigade::device {

using internal::ChunkVersion;
using internal::FileTransfers;
using internal::StoreFile;
using internal::Transfer;

namespace {

// Keeps the file's end far from the end of the numbers.
constexpr int64_t kMostBytes = int64_t{1} << 60;

absl::Status CheckChunks(absl::Span<const int64_t> chunk_bytes) {
  int64_t left = kMostBytes;
  for (size_t i = 0; i < chunk_bytes.size(); ++i) {
    if (chunk_bytes[i] < 0 || chunk_bytes[i] > left) {
      return absl::InvalidArgumentError(
          absl::StrCat("chunk ", i, " of a file has ", chunk_bytes[i], " bytes"));
    }
    left -= chunk_bytes[i];
  }
  return absl::OkStatus();
}

absl::Status Validate(const FileOptions& options, absl::Span<const int64_t> chunk_bytes) {
  BRIGADE_RETURN_IF_ERROR(options.Validate());
  return CheckChunks(chunk_bytes);
}

absl::Status ValidateToOpen(const FileOptions& options, absl::Span<const int64_t> chunk_bytes) {
  if (options.crash_safety == CrashSafety::kNone) {
    return absl::InvalidArgumentError(
        "FileOptions::crash_safety is none, which leaves nothing to open");
  }
  return Validate(options, chunk_bytes);
}

Access SkipOf(const int32_t* skip) {
  return Reads(skip, skip == nullptr ? 0 : static_cast<int64_t>(sizeof(*skip)));
}

// If the caller gives none, which it then points to.
absl::StatusOr<internal::AlignedMemory> MemoryFor(const FileOptions& options,
                                                  absl::Span<const int64_t> chunk_bytes,
                                                  FileBackend& backend) {
  const int64_t bytes = FileStoreMemoryBytes(options, chunk_bytes);
  if (backend.memory.empty()) {
    internal::AlignedMemory own = internal::AllocateAligned(bytes);
    if (own == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("the system refuses ", bytes, " bytes of memory for a file's blocks"));
    }
    backend.memory = absl::MakeSpan(own.get(), static_cast<size_t>(bytes));
    return own;
  }
  if (static_cast<int64_t>(backend.memory.size()) == bytes) return internal::AlignedMemory();
  return absl::InvalidArgumentError(absl::StrCat("FileBackend::memory has ", backend.memory.size(),
                                                 " bytes; needed are ", bytes));
}

// From its first block on.
absl::Span<char> AlignedPart(absl::Span<char> memory) {
  const auto begin = static_cast<int64_t>(reinterpret_cast<uintptr_t>(memory.data()));
  const int64_t before = RoundUp(begin, internal::kFileBlockBytes) - begin;
  return memory.subspan(static_cast<size_t>(before),
                        memory.size() - static_cast<size_t>(internal::kFileBlockBytes));
}

std::string WhatFor(absl::Span<const int64_t> chunk_bytes) {
  int64_t bytes = 0;
  for (const int64_t chunk : chunk_bytes) bytes += chunk;
  return absl::StrCat("two slots of each of ", chunk_bytes.size(), " chunks, which have ", bytes,
                      " bytes,");
}

}  // namespace

class FileStore::State {
 public:
  // Its memory is `backend`'s, else its own.
  State(const FileOptions& options, absl::Span<const int64_t> chunk_bytes, StoreFile file,
        FileBackend backend, FileEngineKind kind, internal::AlignedMemory own)
      : options_(options),
        kind_(kind),
        own_memory_(std::move(own)),
        memory_(AlignedPart(backend.memory)),
        chunk_bytes_(chunk_bytes.begin(), chunk_bytes.end()),
        begins_(chunk_bytes.size()),
        file_(std::move(file)),
        engine_(std::move(backend.engine)),
        versions_(file_, chunk_bytes, options.crash_safety,
                  memory_.subspan(At(options.operations * BytesOfOperation()))) {
    internal::LayOut(chunk_bytes_, absl::MakeSpan(begins_));
  }

  // Rings and threads; a new file gets its table, of another one it is read.
  absl::Status Start(bool is_new);

  absl::Status Check(absl::string_view call, int64_t chunk, const void* memory, size_t bytes) const;
  absl::Status CheckPart(int64_t chunk, int64_t offset, const void* memory, size_t bytes) const;

  // The operations, on a stream's worker.
  absl::Status Read(int64_t chunk, absl::Span<char> to, const int32_t* skip);
  absl::Status ReadPart(int64_t chunk, int64_t offset, absl::Span<char> to);
  absl::Status Write(int64_t chunk, absl::Span<const char> from, const int32_t* skip);
  absl::Status Commit(const int32_t* skip);

  void NameChunks(std::function<std::string(int64_t)> name) { name_ = std::move(name); }

  internal::StoreVersions& versions() { return versions_; }
  int64_t chunks() const { return static_cast<int64_t>(chunk_bytes_.size()); }
  int64_t chunk_bytes(int64_t chunk) const { return chunk_bytes_[At(chunk)]; }
  const std::vector<int64_t>& chunk_sizes() const { return chunk_bytes_; }
  int64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }
  int64_t bytes_written() const { return bytes_written_.load(std::memory_order_relaxed); }
  FileEngineKind kind() const { return kind_; }
  const StoreFile& file() const { return file_; }
  const std::string& description() const { return description_; }

 private:
  static size_t At(int64_t chunk) { return static_cast<size_t>(chunk); }

  absl::Status Refuse(absl::string_view call, int64_t chunk, absl::string_view reason) const;
  absl::Status CheckMemory(absl::string_view call, int64_t chunk, const void* memory,
                           size_t bytes) const;
  // "chunk 3 of /data/state", with a name "chunk 3 (weights of layer 1) of ...".
  std::string NameOf(int64_t chunk) const {
    const bool is_named = name_ != nullptr && chunk >= 0 && chunk < chunks();
    return absl::StrCat("chunk ", chunk, is_named ? absl::StrCat(" (", name_(chunk), ")") : "",
                        " of ", Printable(file_.path(), 400));
  }
  // The committed one. FailedPrecondition if there is none.
  absl::StatusOr<ChunkVersion> VersionToRead(int64_t chunk) const;
  absl::Status FailedToRead(int64_t chunk, const absl::Status& cause) const {
    return absl::Status(cause.code(),
                        absl::StrCat("cannot read ", NameOf(chunk), ": ", cause.message()));
  }

  int64_t BytesOfOperation() const { return options_.queue_depth * internal::kStagingBytes; }

  // Between memory and the file; the sum if it is asked for.
  absl::StatusOr<uint32_t> Carry(Transfer transfer);
  int64_t SlotBegin(int64_t chunk, int32_t slot) const;

  const FileOptions options_;
  const FileEngineKind kind_;
  const internal::AlignedMemory own_memory_;
  // kStagingBytes for each block in flight, then the table.
  const absl::Span<char> memory_;
  std::function<std::string(int64_t)> name_;
  const std::vector<int64_t> chunk_bytes_;
  // Of the first slots.
  std::vector<int64_t> begins_;
  const StoreFile file_;
  const std::unique_ptr<FileEngine> engine_;
  internal::StoreVersions versions_;
  std::string description_;

  // One for each operation that may run at a time.
  std::vector<std::unique_ptr<FileTransfers>> transfers_;
  Mutex free_mutex_;
  CondVar freed_;
  std::vector<FileTransfers*> free_ ABSL_GUARDED_BY(free_mutex_);

  std::atomic<int64_t> bytes_read_{0};
  std::atomic<int64_t> bytes_written_{0};
};

absl::Status FileStore::State::Start(bool is_new) {
  for (int i = 0; i < options_.operations; ++i) {
    BRIGADE_ASSIGN_OR_RETURN(
        auto transfers, FileTransfers::Create(*engine_, options_.queue_depth, options_.block_bytes,
                                              memory_.data() + i * BytesOfOperation()));
    transfers_.push_back(std::move(transfers));
  }
  {
    MutexLock lock(free_mutex_);
    for (const auto& transfers : transfers_) free_.push_back(transfers.get());
  }
  description_ = absl::StrCat(engine_->description(), ", ", file_.mode(), ", ", options_.operations,
                              " x ", options_.queue_depth, " blocks of ", options_.block_bytes,
                              " bytes in flight, crash safety: ", ToString(options_.crash_safety),
                              ", ", options_.checksums ? "CRC-32C of each chunk" : "no checksums");
  return is_new ? versions_.Create() : versions_.Open();
}

absl::Status FileStore::State::Check(absl::string_view call, int64_t chunk, const void* memory,
                                     size_t bytes) const {
  BRIGADE_RETURN_IF_ERROR(CheckMemory(call, chunk, memory, bytes));
  if (static_cast<int64_t>(bytes) == chunk_bytes(chunk)) return absl::OkStatus();
  return Refuse(call, chunk,
                absl::StrCat(" has ", chunk_bytes(chunk), " bytes, the memory has ", bytes));
}

absl::Status FileStore::State::CheckPart(int64_t chunk, int64_t offset, const void* memory,
                                         size_t bytes) const {
  constexpr absl::string_view kCall = "file_read";
  BRIGADE_RETURN_IF_ERROR(CheckMemory(kCall, chunk, memory, bytes));
  const int64_t all = chunk_bytes(chunk);
  if (offset >= 0 && offset <= all && static_cast<int64_t>(bytes) <= all - offset) {
    return absl::OkStatus();
  }
  return Refuse(kCall, chunk,
                absl::StrCat(" has ", all, " bytes, not ", bytes, " from byte ", offset, " on"));
}

absl::Status FileStore::State::Refuse(absl::string_view call, int64_t chunk,
                                      absl::string_view reason) const {
  return absl::InvalidArgumentError(absl::StrCat(call, ": ", NameOf(chunk), reason));
}

absl::Status FileStore::State::CheckMemory(absl::string_view call, int64_t chunk,
                                           const void* memory, size_t bytes) const {
  if (chunk < 0 || chunk >= chunks()) {
    return Refuse(call, chunk, absl::StrCat(", which has ", chunks()));
  }
  if (bytes == 0) return absl::OkStatus();
  const std::optional<Device> home = AddressRegistry::Global().DeviceOf(memory);
  if (home.has_value() && home->kind != DeviceKind::kCpu) {
    return Refuse(call, chunk,
                  absl::StrCat(": the memory is that of ", home->ToString(),
                               ", which no file reaches: use Context::AllocateHost"));
  }
  return absl::OkStatus();
}

int64_t FileStore::State::SlotBegin(int64_t chunk, int32_t slot) const {
  return begins_[At(chunk)] + slot * internal::SlotBytes(chunk_bytes(chunk));
}

absl::StatusOr<uint32_t> FileStore::State::Carry(Transfer transfer) {
  FileTransfers* transfers;
  {
    MutexLock lock(free_mutex_);
    while (free_.empty()) freed_.Wait(free_mutex_);
    transfers = free_.back();
    free_.pop_back();
  }
  const internal::FileSizeSignalBlock no_signal;
  absl::StatusOr<uint32_t> sum = 0u;
  if (absl::Status found = file_.Check(); !found.ok()) {
    sum = std::move(found);
  } else {
    transfer.fd = file_.fd();
    transfer.alignment = file_.alignment();
    sum = transfers->Run(transfer);
  }
  {
    MutexLock lock(free_mutex_);
    free_.push_back(transfers);
    freed_.Signal();
  }
  return sum;
}

absl::Status FileStore::State::Read(int64_t chunk, absl::Span<char> to, const int32_t* skip) {
  if (skip != nullptr && *skip != 0) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(const ChunkVersion version, VersionToRead(chunk));
  const bool sums = options_.checksums && version.has_sum;
  const int64_t begin = SlotBegin(chunk, version.slot);
  const absl::StatusOr<uint32_t> sum =
      Carry({.memory = to.data(), .bytes = chunk_bytes(chunk), .offset = begin, .sums = sums});
  if (!sum.ok()) return FailedToRead(chunk, sum.status());
  if (sums && *sum != version.sum) {
    return absl::DataLossError(absl::StrCat(
        NameOf(chunk), " is damaged: its ", to.size(), " bytes at byte ", begin,
        " have the CRC-32C ", absl::Hex(*sum), ", written were ", absl::Hex(version.sum)));
  }
  bytes_read_.fetch_add(chunk_bytes(chunk), std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::Status FileStore::State::ReadPart(int64_t chunk, int64_t offset, absl::Span<char> to) {
  BRIGADE_ASSIGN_OR_RETURN(const ChunkVersion version, VersionToRead(chunk));
  const auto bytes = static_cast<int64_t>(to.size());
  const absl::StatusOr<uint32_t> sum = Carry(
      {.memory = to.data(), .bytes = bytes, .offset = SlotBegin(chunk, version.slot) + offset});
  if (!sum.ok()) return FailedToRead(chunk, sum.status());
  bytes_read_.fetch_add(bytes, std::memory_order_relaxed);
  return absl::OkStatus();
}

absl::StatusOr<ChunkVersion> FileStore::State::VersionToRead(int64_t chunk) const {
  const ChunkVersion version = versions_.Current(chunk);
  if (version.slot >= 0) return version;
  return absl::FailedPreconditionError(
      absl::StrCat("cannot read ", NameOf(chunk), ": it was never committed"));
}

absl::Status FileStore::State::Write(int64_t chunk, absl::Span<const char> from,
                                     const int32_t* skip) {
  if (skip != nullptr && *skip != 0) return absl::OkStatus();
  BRIGADE_ASSIGN_OR_RETURN(const int32_t slot, versions_.BeginWrite(chunk));
  const absl::StatusOr<uint32_t> sum = Carry({.write = true,
                                              .memory = const_cast<char*>(from.data()),
                                              .bytes = chunk_bytes(chunk),
                                              .offset = SlotBegin(chunk, slot),
                                              .sums = options_.checksums});
  if (!sum.ok()) {
    return absl::Status(sum.status().code(),
                        absl::StrCat("cannot write ", NameOf(chunk), ": ", sum.status().message()));
  }
  bytes_written_.fetch_add(chunk_bytes(chunk), std::memory_order_relaxed);
  versions_.EndWrite(chunk, {slot, options_.checksums, *sum});
  return absl::OkStatus();
}

absl::Status FileStore::State::Commit(const int32_t* skip) {
  if (skip == nullptr || *skip == 0) return versions_.Commit();
  versions_.Abandon();
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<FileStore>> FileStore::Make(const FileOptions& options,
                                                           absl::string_view name,
                                                           absl::Span<const int64_t> chunk_bytes,
                                                           FileBackend backend, bool is_new) {
  const internal::FileSizeSignalBlock no_signal;
  FileEngineKind kind = FileEngineKind::kAuto;
  if (backend.engine == nullptr) {
    BRIGADE_ASSIGN_OR_RETURN(auto chosen, internal::ChooseEngine(options.engine));
    backend.engine = std::move(chosen.engine);
    kind = chosen.kind;
  }
  BRIGADE_ASSIGN_OR_RETURN(auto own_memory, MemoryFor(options, chunk_bytes, backend));
  SystemCalls& system = *backend.system;
  const int64_t bytes = FileStoreBytes(chunk_bytes);
  const bool keeps_name = options.crash_safety != CrashSafety::kNone;
  absl::StatusOr<StoreFile> opened =
      is_new ? StoreFile::Create(system, options.directory, name, bytes, WhatFor(chunk_bytes),
                                 options.direct, keeps_name)
             : StoreFile::Open(system, options.directory, name, bytes, options.direct);
  if (!opened.ok()) return std::move(opened).status();
  StoreFile file = *std::move(opened);
  const std::string path = file.path();
  auto state = std::make_shared<State>(options, chunk_bytes, std::move(file), std::move(backend),
                                       kind, std::move(own_memory));
  if (absl::Status status = state->Start(is_new); !status.ok()) {
    if (is_new && keeps_name) system.Unlink(path);
    return status;
  }
  return std::unique_ptr<FileStore>(new FileStore(std::move(state)));
}

absl::StatusOr<std::unique_ptr<FileStore>> FileStore::Create(const FileOptions& options,
                                                             absl::string_view name,
                                                             absl::Span<const int64_t> chunk_bytes,
                                                             FileBackend backend) {
  BRIGADE_RETURN_IF_ERROR(Validate(options, chunk_bytes));
  return Make(options, name, chunk_bytes, std::move(backend), /*is_new=*/true);
}

absl::StatusOr<std::unique_ptr<FileStore>> FileStore::Open(const FileOptions& options,
                                                           absl::string_view name,
                                                           absl::Span<const int64_t> chunk_bytes,
                                                           FileBackend backend) {
  BRIGADE_RETURN_IF_ERROR(ValidateToOpen(options, chunk_bytes));
  return Make(options, name, chunk_bytes, std::move(backend), /*is_new=*/false);
}

FileStore::FileStore(std::shared_ptr<State> state) : state_(std::move(state)) {}

FileStore::~FileStore() = default;

void FileStore::NameChunks(std::function<std::string(int64_t chunk)> name) {
  state_->NameChunks(std::move(name));
}

absl::Status FileStore::Read(Stream& stream, int64_t chunk, absl::Span<char> to,
                             const int32_t* skip) {
  BRIGADE_RETURN_IF_ERROR(state_->Check("file_read", chunk, to.data(), to.size()));
  return stream.Enqueue(
      {"file_read",
       {Writes(to.data(), state_->chunk_bytes(chunk)), state_->versions().ReadsCurrent(chunk),
        SkipOf(skip)}},
      [state = state_, chunk, to, skip](ThreadPool&) { return state->Read(chunk, to, skip); });
}

absl::Status FileStore::ReadPart(Stream& stream, int64_t chunk, int64_t offset,
                                 absl::Span<char> to) {
  BRIGADE_RETURN_IF_ERROR(state_->CheckPart(chunk, offset, to.data(), to.size()));
  return stream.Enqueue({"file_read",
                         {Writes(to.data(), static_cast<int64_t>(to.size())),
                          state_->versions().ReadsCurrent(chunk)}},
                        [state = state_, chunk, offset, to](ThreadPool&) {
                          return state->ReadPart(chunk, offset, to);
                        });
}

absl::Status FileStore::Write(Stream& stream, int64_t chunk, absl::Span<const char> from,
                              const int32_t* skip) {
  BRIGADE_RETURN_IF_ERROR(state_->Check("file_write", chunk, from.data(), from.size()));
  return stream.Enqueue(
      {"file_write",
       {Reads(from.data(), state_->chunk_bytes(chunk)), state_->versions().ReadsCurrent(chunk),
        state_->versions().WritesWritten(chunk), SkipOf(skip)}},
      [state = state_, chunk, from, skip](ThreadPool&) { return state->Write(chunk, from, skip); });
}

absl::Status FileStore::Commit(Stream& stream, const int32_t* skip) {
  return stream.Enqueue({"file_commit",
                         {state_->versions().WritesAllCurrent(),
                          state_->versions().WritesAllWritten(), SkipOf(skip)}},
                        [state = state_, skip](ThreadPool&) { return state->Commit(skip); });
}

absl::Status FileStore::Abandon(Stream& stream) {
  return stream.Enqueue({"file_abandon", {state_->versions().WritesAllWritten()}},
                        [state = state_](ThreadPool&) {
                          state->versions().Abandon();
                          return absl::OkStatus();
                        });
}

int64_t FileStore::chunks() const { return state_->chunks(); }
int64_t FileStore::chunk_bytes(int64_t chunk) const { return state_->chunk_bytes(chunk); }
int64_t FileStore::bytes() const { return FileStoreBytes(state_->chunk_sizes()); }
int64_t FileStore::commits() const { return state_->versions().commits(); }
int64_t FileStore::bytes_read() const { return state_->bytes_read(); }
int64_t FileStore::bytes_written() const { return state_->bytes_written(); }
FileEngineKind FileStore::engine() const { return state_->kind(); }
bool FileStore::direct() const { return state_->file().direct(); }
const std::string& FileStore::path() const { return state_->file().path(); }
const std::string& FileStore::description() const { return state_->description(); }

std::string NewFileName(absl::string_view prefix) {
  std::random_device random;
  return absl::StrCat(prefix, "_", getpid(), "_", absl::Hex(random(), absl::kZeroPad8));
}

}  // namespace brigade::device
