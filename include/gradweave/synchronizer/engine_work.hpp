/// @file
/// The side of an engine that its lane sees.
#pragma once

#include <gradweave/overlap/concept.hpp>

namespace gradweave::detail {

/// What the lane drives of an engine. A type of its own, since the engine is not complete where its lane is named.
template <class Engine>
struct engine_work {
  Engine* driven;

  lane_status advance() noexcept { return driven->advance(); }
  void wait() noexcept { driven->wait(); }
  bool finished() const noexcept { return driven->finished(); }
};

}  // namespace gradweave::detail
