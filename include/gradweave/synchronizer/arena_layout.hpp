/// @file
/// Where each slot's gradient lies in the arena. Laid out once, when the manifest is sealed.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>

namespace gradweave::detail {

/// Offsets in bytes, by slot; adopted slots have none and keep 0.
struct arena_layout {
  std::vector<std::size_t> offsets;
  std::size_t bytes = 0;
};

/// Slots of one element kind lie together, the one registered last first: the order in which most plans launch them, so
/// that the extents of a bucket coalesce. Gradients that tensors use in place begin on cache lines, since a trainer's
/// kernels work on them; the others are packed, so that not even padding comes between them.
inline arena_layout lay_out_arena(std::span<const manifest_entry> entries) {
  constexpr std::size_t cache_line = 64;
  arena_layout layout;
  layout.offsets.resize(entries.size());
  const auto align = [&](std::size_t alignment) {
    layout.bytes = (layout.bytes + alignment - 1) / alignment * alignment;
  };
  std::vector<element_kind> kinds;
  for (const manifest_entry& entry : entries) {
    if (std::find(kinds.begin(), kinds.end(), entry.gradient.kind()) == kinds.end()) {
      kinds.push_back(entry.gradient.kind());
    }
  }
  for (const element_kind kind : kinds) {
    align(cache_line);
    for (std::size_t i = entries.size(); i-- > 0;) {
      const manifest_entry& entry = entries[i];
      if (entry.gradient.kind() != kind || entry.where == residence::adopted) {
        continue;
      }
      align(entry.where == residence::arena ? cache_line : element_bytes(kind));
      layout.offsets[i] = layout.bytes;
      layout.bytes += entry.gradient.bytes();
    }
  }
  return layout;
}

}  // namespace gradweave::detail
