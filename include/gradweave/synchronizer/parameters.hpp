/// @file
/// Parameters are equal on all ranks: one rank's values at the start, and a comparison whenever it is asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer/rank_table.hpp>

namespace gradweave::detail {

/// Where all parameters and `buffers` lie, which are to come from rank `root`. Throws contract_violation where there is no
/// such rank.
inline std::vector<extent> parameter_extents(int root, int size, std::span<const manifest_entry> entries,
                                             std::span<const manifest_buffer> buffers = {}) {
  if (root < 0 || root >= size) {
    violate("synchronize: parameters are to come from rank " + std::to_string(root) + "; there are ranks 0 to " +
            std::to_string(size - 1));
  }
  std::vector<extent> parameters;
  for (const manifest_entry& entry : entries) {
    if (entry.parameter) {
      append_extent(parameters, entry.parameter->data(), entry.parameter->bytes());
    }
  }
  for (const manifest_buffer& buffer : buffers) {
    append_extent(parameters, buffer.value.data(), buffer.value.bytes());
  }
  return parameters;
}

/// The values that rank `root` has of all parameters, and of `buffers`, on every rank. Throws contract_violation where there is no such
/// rank.
template <host_backend Backend>
void broadcast_parameters(Backend& backend, int root, std::span<const manifest_entry> entries,
                          std::span<const manifest_buffer> buffers = {}) {
  const std::vector<extent> parameters = parameter_extents(root, backend.size(), entries, buffers);
  run_collective(backend, {.operation = collective::broadcast, .root = root, .data = parameters});
}

/// Differs where any bit does, but for one case in 2^64: each word is mixed in by a multiplication that can be undone.
inline std::uint64_t digest_of(std::span<const std::byte> bytes) {
  std::uint64_t hash = bytes.size() * 0xbf58476d1ce4e5b9U;
  for (std::size_t i = 0; i < bytes.size(); i += sizeof hash) {
    std::uint64_t word = 0;
    std::memcpy(&word, bytes.data() + i, bytes.size() - i < sizeof word ? bytes.size() - i : sizeof word);
    hash = (hash ^ word) * 0x9e3779b97f4a7c15U;
    hash ^= hash >> 32;
  }
  return hash;
}

/// Throws sync_error(parameters_diverged) on every rank where any parameter has other bits than on rank 0: it names the
/// first such slot, and a rank. Parameters must still exist.
template <host_backend Backend>
void compare_parameters(Backend& backend, std::span<const manifest_entry> entries) {
  std::vector<std::uint64_t> own;
  for (const manifest_entry& entry : entries) {
    own.push_back(
        entry.parameter ? digest_of(std::span(std::as_const(*entry.parameter).data(), entry.parameter->bytes())) : 0);
  }
  rank_table<std::uint64_t> of_all(backend.rank(), backend.size());
  run_collective(backend, of_all.request(digest_of(std::as_bytes(std::span(own)))));
  if (std::ranges::all_of(of_all.values(), [&](std::uint64_t each) { return each == of_all.values().front(); })) {
    return;
  }
  std::vector<std::uint64_t> digests(entries.size() * of_all.values().size());  // by rank and slot
  std::vector<std::size_t> pieces;
  for (std::size_t r = 0; r <= of_all.values().size(); ++r) {
    pieces.push_back(r * entries.size());
  }
  std::ranges::copy(own,
                    digests.begin() + static_cast<std::ptrdiff_t>(pieces[static_cast<std::size_t>(backend.rank())]));
  const extent whole{reinterpret_cast<std::byte*>(digests.data()), digests.size() * sizeof(std::uint64_t), 0};
  run_collective(
      backend,
      {.operation = collective::all_gather, .kind = element_kind::uint64, .data = {&whole, 1}, .pieces = pieces});
  for (std::size_t i = 0; i < entries.size(); ++i) {
    for (std::size_t r = 1; r < of_all.values().size(); ++r) {
      if (digests[pieces[r] + i] != digests[i]) {
        failure cause{errc::parameters_diverged, static_cast<int>(r), -1, -1, {entries[i].name}, ""};
        cause.detail = "the parameter of slot '" + entries[i].name + "' differs between rank 0 and rank " +
                       std::to_string(r) + "; update it on every rank alike, from the synchronized gradient";
        throw sync_error(std::move(cause));
      }
    }
  }
}

/// The same at the end of step `step`, where rules ask for it.
template <host_backend Backend>
void compare_if_due(Backend& backend, std::span<const manifest_entry> entries, const parameters& rules,
                    std::uint64_t step) {
  if (rules.compare_every != 0 && (step + 1) % rules.compare_every == 0) {
    compare_parameters(backend, entries);
  }
}

}  // namespace gradweave::detail
