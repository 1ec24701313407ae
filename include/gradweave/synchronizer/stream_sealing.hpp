/// @file
/// What happens to a manifest when it is sealed over a stream backend: ranks compare what they registered and chose, over the
/// backend's control, and gradients get their places.
#pragma once

#include <utility>

#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer/agreement.hpp>
#include <gradweave/synchronizer/arena_layout.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/stream_rules.hpp>

namespace gradweave::detail {

/// Kernels gather from tensors as well as from the arena: gradients with memory of their own are worked on where they are.
inline manifest without_copies(manifest gradients) {
  for (manifest_entry& entry : gradients.entries()) {
    entry.where = entry.where == residence::own ? residence::adopted : entry.where;
  }
  return gradients;
}

/// The arena that gradients have their places in which asked for it. Throws sync_error on every rank where anything differs,
/// and contract_violation for rules that streams can't follow, or memory that lies elsewhere.
template <stream_backend Backend>
auto place_gradients_for_streams(Backend& backend, gradient_table& gradients, const step_rules& rules,
                                 description chosen) {
  rules.check();
  check_stream_rules(rules, gradients.buffers());
  gradients.check_memory_space(Backend::space);
  if (backend.size() > 1) {
    agree(backend.control(), contract_of(std::move(chosen), gradients.entries()));
  }
  const arena_layout layout = lay_out_arena(gradients.entries());
  auto arena = backend.allocate_arena(layout.bytes);
  gradients.place(layout, arena.data());
  return arena;
}

}  // namespace gradweave::detail
