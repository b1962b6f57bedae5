#ifndef BRIGADE_DEVICE_INTERNAL_TASK_H_
#define BRIGADE_DEVICE_INTERNAL_TASK_H_

#include <cstddef>
#include <memory>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace brigade::device {
class ThreadPool;
}  // namespace brigade::device

namespace brigade::device::internal {

// How to store and run one kind of closure: like std::function, without memory of its own.
struct TaskType {
  size_t size;
  size_t alignment;
  // Of the items of the list that is stored with the closure; 0 and 1 if there is none.
  size_t item_bytes;
  size_t item_alignment;
  absl::Status (*run)(void* work, const void* list, size_t items, ThreadPool& pool);
  // Constructs a closure at `to`.
  void (*move)(void* from, void* to);
  void (*destroy)(void* work);
};

template <typename F>
void MoveWork(void* from, void* to) {
  new (to) F(std::move(*static_cast<F*>(from)));
}

template <typename F>
void DestroyWork(void* work) {
  std::destroy_at(static_cast<F*>(work));
}

template <typename F>
inline constexpr TaskType kTask = {
    .size = sizeof(F),
    .alignment = alignof(F),
    .item_bytes = 0,
    .item_alignment = 1,
    .run = [](void* work, const void*, size_t, ThreadPool& pool) -> absl::Status {
      return (*static_cast<F*>(work))(pool);
    },
    .move = &MoveWork<F>,
    .destroy = &DestroyWork<F>,
};

template <typename T, typename F>
inline constexpr TaskType kListTask = {
    .size = sizeof(F),
    .alignment = alignof(F),
    .item_bytes = sizeof(T),
    .item_alignment = alignof(T),
    .run = [](void* work, const void* list, size_t items, ThreadPool& pool) -> absl::Status {
      return (*static_cast<F*>(work))(absl::Span<const T>(static_cast<const T*>(list), items),
                                      pool);
    },
    .move = &MoveWork<F>,
    .destroy = &DestroyWork<F>,
};

}  // namespace brigade::device::internal

#endif  // BRIGADE_DEVICE_INTERNAL_TASK_H_
