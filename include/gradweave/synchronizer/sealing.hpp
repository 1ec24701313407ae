/// @file
/// What happens to a manifest when it is sealed: ranks compare what they registered and chose, gradients get their places
/// in the arena, and parameters and buffers their values.
#pragma once

#include <utility>

#include <gradweave/backend/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer/agreement.hpp>
#include <gradweave/synchronizer/arena_layout.hpp>
#include <gradweave/synchronizer/buffers.hpp>
#include <gradweave/synchronizer/gradient_table.hpp>
#include <gradweave/synchronizer/parameters.hpp>

namespace gradweave::detail {

/// The arena that the gradients have their places in. Throws sync_error on every rank where anything differs, and
/// contract_violation where rules contradict each other, memory lies elsewhere, or buffers can't be had.
template <host_backend Backend>
auto place_gradients(Backend& backend, gradient_table& gradients, const step_rules& rules, description chosen) {
  rules.check();
  gradients.check_memory_space(Backend::space);
  check_buffers<Backend>(gradients.buffers(), backend.size());
  if (backend.size() > 1) {
    agree(backend, contract_of(std::move(chosen), gradients.entries(), gradients.buffers()));
  }
  const arena_layout layout = lay_out_arena(gradients.entries());
  auto arena = backend.allocate_arena(layout.bytes);
  gradients.place(layout, arena.data());
  return arena;
}

/// One rank's values on all ranks, compared.
template <host_backend Backend>
void begin_parameters(Backend& backend, const gradient_table& gradients, const step_rules& rules) {
  if (backend.size() > 1) {
    broadcast_parameters(backend, rules.values.broadcast_from, gradients.entries(), gradients.buffers());
    compare_parameters(backend, gradients.entries());
  }
}

}  // namespace gradweave::detail
