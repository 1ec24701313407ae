/// @file
/// A backend for fuzz targets: whatever the other ranks send, the input says.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <gradweave/backend/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/memory_space.hpp>
#include <gradweave/testing/archetypes.hpp>

#include "tests/fuzz/check.hpp"

namespace gradweave::fuzz {

/// The last of `size` ranks. What it receives are the input's bytes; after these the others are gone.
class scripted_backend {
 public:
  static constexpr memory_space space = memory_space::host;
  static constexpr execution_model execution = execution_model::host;
  static constexpr collective_set capabilities = {collective::all_gather, collective::broadcast};

  scripted_backend(int size, bytes_view input) : size_(size), left_(input) {}

  int rank() const { return size_ - 1; }
  int size() const { return size_; }
  testing::arena_archetype allocate_arena(std::size_t bytes) { return testing::arena_archetype(bytes); }
  failure abort(failure cause) { return cause; }
  std::uint64_t payload_bytes_sent() const { return 0; }
  void describe(description& sink) const { sink.add("name", "scripted"); }

  void start(const collective_request& request) {
    if (request.operation == collective::broadcast && request.root == rank()) {
      return;
    }
    // Of an all-gather the last piece is the own one.
    const std::size_t last = request.pieces.empty() ? 0 : request.pieces.size() - 1;
    const std::size_t own =
        request.operation == collective::all_gather ? request.pieces[last] - request.pieces[last - 1] : 0;
    for (const extent& each : request.data) {
      const std::size_t wanted = each.bytes - own * element_bytes(request.kind);
      if (wanted > left_.size()) {
        throw sync_error({errc::peer_lost, 0, -1, -1, {}, "the input has ended"});
      }
      std::copy_n(left_.begin(), wanted, each.memory);
      left_ = left_.subspan(wanted);
    }
  }
  bool poll() { return true; }
  void wait() {}

 private:
  int size_;
  bytes_view left_;
};

static_assert(host_backend<scripted_backend>);

/// Whether the job ended since the input did.
inline bool is_lost(const sync_error& told) { return told.cause().code == errc::peer_lost; }

}  // namespace gradweave::fuzz
