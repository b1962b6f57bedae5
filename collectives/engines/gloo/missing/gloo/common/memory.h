#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_MISSING_GLOO_COMMON_MEMORY_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_MISSING_GLOO_COMMON_MEMORY_H_

// Debian's libgloo-dev has headers that include this one, and lacks it. They hold such pointers in
// members, whose size and destruction must be Gloo's; nothing of ours uses one. Where Gloo brings
// the header itself, that one is found first.

#include <memory>

namespace gloo {

template <typename T>
class NonOwningPtr {
 private:
  std::shared_ptr<T> pointer_;
};

template <typename T>
class WeakNonOwningPtr {
 private:
  std::weak_ptr<T> pointer_;
};

template <typename T>
class ShareableNonOwningPtr;

}  // namespace gloo

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_MISSING_GLOO_COMMON_MEMORY_H_
