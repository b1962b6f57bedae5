#ifndef BRIGADE_CHECKPOINT_WRITE_MODE_H_
#define BRIGADE_CHECKPOINT_WRITE_MODE_H_

#include <cstdint>

namespace brigade::checkpoint {

// Who writes which files.
enum class WriteMode : uint8_t {
  // All ranks write their pieces into the same files, in a folder that all of them see: one host,
  // or a file system on which what one host has written and synced is what another one reads.
  kInPlace,
  // Each rank writes one file of its own pieces, so that no file has two writers: for NFS, and for
  // hosts with disks of their own, each of which gets a folder with the manifest and the files of
  // its ranks. `checkpoint:export` makes one file of all.
  kPieceFiles,
};

}  // namespace brigade::checkpoint

#endif  // BRIGADE_CHECKPOINT_WRITE_MODE_H_
