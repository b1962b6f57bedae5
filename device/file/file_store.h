#ifndef BRIGADE_DEVICE_FILE_FILE_STORE_H_
#define BRIGADE_DEVICE_FILE_FILE_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "brigade/device/file/file_engine.h"
#include "brigade/device/file/file_options.h"
#include "brigade/device/file/system_calls.h"
#include "brigade/device/stream.h"

namespace brigade::device {

// What a store works with.
struct FileBackend {
  // Null: the engine of FileOptions::engine.
  std::unique_ptr<FileEngine> engine = nullptr;
  // For all that is no transfer.
  SystemCalls* system = &SystemCalls::Real();
  // FileStoreMemoryBytes of the host's, which live until the last operation is over; so they are in
  // the caller's books. Empty: the store takes its own, which are in none.
  absl::Span<char> memory = {};
};

// Chunks of bytes in one file, read and written by operations on streams, in steps that happen as a
// whole or not at all.
//
// Versions     Each chunk has two slots in the file. Read takes the one of the last commit; Write
//              goes to the other one, as often as wanted; Commit turns all chunks that were written
//              since the last Commit or Abandon over to what was written, and leaves the others. So
//              a step that is skipped or fails costs nothing: it is not committed. The operations
//              choose the slot when they run, not when they are enqueued.
// Crashes      FileOptions::crash_safety says after which the last commit is whole; Open finds it.
// Order        Streams and events order the operations as any others. The race checker knows of the
//              chunks: a Read that no event orders behind a Commit is a race, as is a kernel that
//              uses the memory of a transfer meanwhile. A Read and a Write of the same chunk do not
//              conflict. The tracer knows them as file_read, file_write, file_commit and
//              file_abandon.
// Overlap      One operation keeps FileOptions::queue_depth blocks in flight and ends when all have
//              ended. To read one chunk while another is computed and a third is written, use a
//              stream for each.
// Streams      On CPU contexts. For a GPU, a CPU context's stream beside it moves page-locked
//              memory of Context::AllocateHost. Any contexts, several at a time.
// Skip         With `skip`, which is read when the operation runs, an operation does nothing if
//              *skip is not 0, and Commit abandons: a step is given up on without the host.
// Memory       Any address; one that is not aligned as O_DIRECT asks (Context's memory from 4096
//              bytes up is) costs a copy in memory. It must live until the operation is over.
// Allocation   None in steady state. FileStoreMemoryBytes, taken at Create or given to it.
// Errors       A call's: InvalidArgument naming chunk and bytes, before anything is enqueued. An
//              operation's fails the stream, and names file, chunk, offset, bytes asked and done,
//              and what the system says: DataLoss for a file that was cut, removed or changed and
//              for a disk that cannot read or write, ResourceExhausted for a full one,
//              FailedPrecondition for a Read of what was never committed. A Write that failed has
//              touched nothing that Read takes. Where the table could not be written, the store
//              takes no more writes; reads go on.
// Lifetime     May end before its streams and the operations on them: the last one closes the file.
// Threads      Safe from any thread.
class FileStore {
 public:
  // A new file of that name, with room for two slots of every chunk; nothing is committed yet. With
  // CrashSafety it stays when the store ends: its owner removes path(). AlreadyExists if there is
  // one; ResourceExhausted if there is no room, with how much is needed for what, and how much is
  // there; Unavailable for an engine that the kernel lacks or forbids.
  static absl::StatusOr<std::unique_ptr<FileStore>> Create(const FileOptions& options,
                                                           absl::string_view name,
                                                           absl::Span<const int64_t> chunk_bytes,
                                                           FileBackend backend = {});

  // What a store with CrashSafety left there, as of its last commit; the chunks must be the same.
  // Waits for at most a second while a killed process still uses the file. InvalidArgument for
  // CrashSafety::kNone and for other chunks; NotFound; FailedPrecondition if another store has it;
  // DataLoss if it is no such file, was cut, is older than CrashSafety::kProcess allows, or both
  // copies of the table are damaged.
  static absl::StatusOr<std::unique_ptr<FileStore>> Open(const FileOptions& options,
                                                         absl::string_view name,
                                                         absl::Span<const int64_t> chunk_bytes,
                                                         FileBackend backend = {});

  // Errors say what this says of a chunk behind its number. Before the first operation.
  void NameChunks(std::function<std::string(int64_t chunk)> name);

  ~FileStore();
  FileStore(const FileStore&) = delete;
  FileStore& operator=(const FileStore&) = delete;

  // The memory has the chunk's size.
  absl::Status Read(Stream& stream, int64_t chunk, absl::Span<char> to,
                    const int32_t* skip = nullptr);
  // The bytes of a chunk from `offset` on, any of them. Checksums are of whole chunks: none is
  // compared.
  absl::Status ReadPart(Stream& stream, int64_t chunk, int64_t offset, absl::Span<char> to);
  absl::Status Write(Stream& stream, int64_t chunk, absl::Span<const char> from,
                     const int32_t* skip = nullptr);

  // All that was written is current, from here on in the stream's order; the writes must be ordered
  // before. If one of them failed and the stream knows it, as a stream does that waits for them,
  // this does not run.
  absl::Status Commit(Stream& stream, const int32_t* skip = nullptr);
  // Forgets what was written since the last Commit: for a step that went wrong elsewhere.
  absl::Status Abandon(Stream& stream);

  int64_t chunks() const;
  int64_t chunk_bytes(int64_t chunk) const;
  // What the file takes on the disk.
  int64_t bytes() const;

  // How many commits have ended, since Create: those that Open found count.
  int64_t commits() const;
  // Of chunks, by operations that have ended: without what fills up blocks, and without the table.
  int64_t bytes_read() const;
  int64_t bytes_written() const;

  // kIoUring or kThreads; kAuto for an engine of the caller's.
  FileEngineKind engine() const;
  // Whether transfers go past the page cache.
  bool direct() const;
  const std::string& path() const;
  // One line for a report: engine and why it, direct or buffered and why, blocks in flight, crash
  // safety, checksums.
  const std::string& description() const;

 private:
  class State;

  explicit FileStore(std::shared_ptr<State> state);

  static absl::StatusOr<std::unique_ptr<FileStore>> Make(const FileOptions& options,
                                                         absl::string_view name,
                                                         absl::Span<const int64_t> chunk_bytes,
                                                         FileBackend backend, bool is_new);

  // Shared with the operations that are enqueued.
  std::shared_ptr<State> state_;
};

// "prefix_PID_RANDOM": for a directory that several processes use, of no other file there.
std::string NewFileName(absl::string_view prefix);

}  // namespace brigade::device

#endif  // BRIGADE_DEVICE_FILE_FILE_STORE_H_
