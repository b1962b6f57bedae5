#ifndef BRIGADE_DEVICE_FILE_STORE_TABLE_H_
#define BRIGADE_DEVICE_FILE_STORE_TABLE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace brigade::device::internal {

// The file of a store: two copies of the table, then the two slots of each chunk, all of it in
// whole blocks of kFileBlockBytes. Commit n writes copy n % 2, so that the copy of commit n - 1 is
// there until commit n is: a table that was not written whole is found by its sum, and the other
// one counts.

// What of a chunk is current, or was written and waits for a commit.
struct ChunkVersion {
  // 0 or 1; -1: nothing.
  int32_t slot = -1;
  bool has_sum = false;
  // The CRC-32C of the chunk's bytes in the slot.
  uint32_t sum = 0;
};

// Of one copy.
int64_t TableBytes(int64_t chunks);

// Where a slot of a chunk begins, for all chunks in turn: the slots of a chunk are neighbours.
// `begins` has the first slots; the second ones are SlotBytes behind them. Returns the file's end.
int64_t SlotBytes(int64_t chunk_bytes);
int64_t LayOut(absl::Span<const int64_t> chunk_bytes, absl::Span<int64_t> begins);

// Tells the chunks of one store from those of another.
uint32_t LayoutSum(absl::Span<const int64_t> chunk_bytes);

struct TableHead {
  uint32_t layout_sum = 0;
  // Not 0: the table, and what it says, is good as long as the machine has not been started again
  // since this start of it.
  uint32_t boot_sum = 0;
  int64_t commits = 0;
};

// `to` has TableBytes.
void WriteTable(const TableHead& head, absl::Span<const ChunkVersion> versions,
                absl::Span<char> to);

// DataLoss if `from` is no table or a damaged one; InvalidArgument if it is one of other chunks
// than those of `layout_sum`.
absl::StatusOr<TableHead> ReadTable(absl::string_view from, uint32_t layout_sum,
                                    absl::Span<ChunkVersion> versions);

// Of the machine's last start; 0 if the system does not say.
uint32_t BootSum();

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_FILE_STORE_TABLE_H_
