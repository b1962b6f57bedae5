#ifndef BRIGADE_NN_SEGMENTS_H_
#define BRIGADE_NN_SEGMENTS_H_

#include <cstdint>

#include "brigade/precision/host_device.h"

namespace brigade::nn {

// The documents that share each text of a batch, one behind the other, so that none sees another: a
// segment is the positions of one document. Without positions each text is one segment.
//
// Shapes       positions [batch, context]: which of its segment a position is, from 0; ends [batch,
//              context]: the place in the text behind the segment's last position. Device memory of
//              int32, texts `stride` numbers apart. For documents of 2 and 3 tokens positions are
//              0 1 0 1 2, ends 2 2 5 5 5.
//
// The host does not see them, so what is no such number is no error of a call: nothing is read or
// written behind an array, and what a layer gives for that text means nothing, nor need it be the
// same every time.
struct Segments {
  const int32_t* positions = nullptr;
  const int32_t* ends = nullptr;
  int64_t stride = 0;

  BRIGADE_INLINE bool exist() const { return positions != nullptr; }
  // Of the segment of position `t` of a text: where it begins, at most t, and ends, behind t.
  BRIGADE_INLINE int64_t Begin(int64_t text, int64_t t) const {
    if (!exist()) return 0;
    const int64_t position = positions[text * stride + t];
    return position < 0 || position > t ? t : t - position;
  }
  BRIGADE_INLINE int64_t End(int64_t text, int64_t t, int64_t context) const {
    if (!exist()) return context;
    const int64_t end = ends[text * stride + t];
    return end <= t || end > context ? t + 1 : end;
  }
};

// Walks over the tiles of kTile positions, counted from the begin of each segment, that begin at
// positions [slot * kTile, (slot + 1) * kTile) of a text. A long segment has one in each slot, and
// slots can be worked on in any order.
template <int64_t kTile>
struct SegmentTile {
  // The segment, and the tile's first position in it. 32 bits, as the numbers of a segment: on a
  // GPU each is a register of every thread.
  int32_t begin, end, first;

  // Calls body(tile) for each.
  template <typename Body>
  BRIGADE_INLINE static void ForSlot(const Segments& segments, int64_t text, int64_t context,
                                     int64_t slot, const Body& body) {
    const int64_t behind = (slot + 1) * kTile < context ? (slot + 1) * kTile : context;
    for (auto t = static_cast<int32_t>(slot * kTile); t < behind;) {
      const auto begin = static_cast<int32_t>(segments.Begin(text, t));
      const auto end = static_cast<int32_t>(segments.End(text, t, context));
      const auto first = static_cast<int32_t>((t - begin + kTile - 1) / kTile * kTile);
      if (begin + first == t) {
        body(SegmentTile{begin, end, first});
        t += static_cast<int32_t>(kTile);
      } else {
        t = begin + first;
      }
      if (t > end) t = end;
    }
  }
};

}  // namespace brigade::nn

#endif  // BRIGADE_NN_SEGMENTS_H_
