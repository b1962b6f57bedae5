#ifndef BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_RELEASE_H_
#define BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_RELEASE_H_

// Classes here derive from Gloo's own, whose protected parts change without a number that says so.

#include <type_traits>

#include "gloo/transport/tcp/loop.h"

static_assert(std::is_same_v<decltype(&::gloo::transport::tcp::Handler::handleEvents),
                             void (::gloo::transport::tcp::Handler::*)(int)>,
              "Brigade's Gloo engine is written for the Gloo of Debian 12 (2022-05-18); this one's "
              "TCP transport is another. All else builds without it.");

#endif  // BRIGADE_COLLECTIVES_ENGINES_GLOO_GLOO_RELEASE_H_
