#ifndef BRIGADE_COLLECTIVES_COMPRESSED_SEED_COLUMNS_H_
#define BRIGADE_COLLECTIVES_COMPRESSED_SEED_COLUMNS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "brigade/collectives/compressed/seed_columns_math.h"
#include "brigade/device/stream.h"

namespace brigade::collectives {

// Gives a direction to each column of zeros: element i of column c becomes ColumnSeed(c, i). Other
// columns keep every bit. `elements`: of all columns together, for the checks.
//
// Traffic      4 bytes an element, read; 4 more in columns of zeros.
// Stream       Enqueued on `stream`; allocates nothing in steady state and never waits. The begins
//              are read when the work runs.
// Determinism  Same bits on every device.
// Errors       InvalidArgument naming argument and value, before anything is enqueued: null,
//              misaligned address, negative size, overlap, memory known as another device's.
absl::Status SeedColumns(const ColumnList& columns, int64_t elements, device::Stream& stream);

}  // namespace brigade::collectives

#endif  // BRIGADE_COLLECTIVES_COMPRESSED_SEED_COLUMNS_H_
