/// @file
/// What a backend is: it knows its rank, provides the arena's memory and runs collectives, one after another.
/// docs/reference/backend.md has the requirements.
#pragma once

#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string_view>
#include <type_traits>

#include <gradweave/description.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/memory_space.hpp>
#include <gradweave/reduction.hpp>

namespace gradweave {

/// Collective operations by their usual names. Values travel on the wire.
enum class collective : std::uint8_t {
  all_reduce = 1,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  barrier,
  gather,
};

/// "invalid" for a value, read off the wire, that names no operation of this version.
constexpr std::string_view to_string(collective operation) {
  constexpr std::string_view names[] = {"invalid",    "all_reduce", "reduce_scatter", "all_gather",
                                        "all_to_all", "broadcast",  "barrier",        "gather"};
  return operation <= collective::gather ? names[static_cast<std::size_t>(operation)] : names[0];
}

/// Which collectives a backend offers.
class collective_set {
 public:
  constexpr collective_set(std::initializer_list<collective> operations) {
    for (const collective operation : operations) {
      bits_ |= 1U << static_cast<unsigned>(operation);
    }
  }
  constexpr bool contains(collective operation) const { return (bits_ >> static_cast<unsigned>(operation) & 1U) != 0; }
  constexpr bool contains(collective_set other) const { return (bits_ & other.bits_) == other.bits_; }

  friend constexpr collective_set operator|(collective_set a, collective_set b) {
    a.bits_ |= b.bits_;
    return a;
  }

 private:
  unsigned bits_ = 0;
};

/// One collective. What it refers to must live until it is complete. Counts and positions are in elements of `kind`.
///
/// | operation      | `data`                                | `pieces`                      | `source`         |
/// |----------------|---------------------------------------|-------------------------------|------------------|
/// | all_reduce     | in and out, same length on all ranks  | unused                        | unused           |
/// | reduce_scatter | in; own piece out, others left undefined | same on all ranks          | unused           |
/// | all_gather     | own piece in, all pieces out          | same on all ranks             | unused           |
/// | all_to_all     | out: piece r comes from rank r        | own                           | in: `source_pieces`, piece r goes to rank r |
/// | broadcast      | in on `root`, out elsewhere           | unused                        | unused           |
/// | barrier        | unused                                | unused                        | unused           |
/// | gather         | own piece in; on `root` all pieces out | same on all ranks            | unused           |
///
/// `pieces` and `source_pieces` hold size + 1 rising positions: rank r's piece is [pieces[r], pieces[r + 1]).
struct collective_request {
  collective operation = collective::barrier;
  element_kind kind = element_kind::uint8;
  reduction reduce = {};
  int root = 0;
  std::uint32_t plan_version = 0;  ///< compared across ranks before any payload moves
  std::span<const extent> data = {};
  std::span<const std::size_t> pieces = {};
  std::span<const extent> source = {};
  std::span<const std::size_t> source_pieces = {};
  std::span<std::byte> scratch = {};  ///< any bytes, which a backend may use until then in place of memory of its own
};

/// Whether collectives are driven by the host that waits, or ordered on a stream of a device.
enum class execution_model : std::uint8_t { host, stream };

/// Atom: `rank()` and `size()`.
template <class B>
concept backend_has_rank = requires(const B& backend) {
  { backend.rank() } -> std::same_as<int>;
  { backend.size() } -> std::same_as<int>;
};

/// Atom: `static constexpr memory_space space`.
template <class B>
concept backend_has_space = !requires { requires std::is_member_pointer_v<decltype(&B::space)>; } &&
                            requires { typename std::integral_constant<memory_space, B::space>; };

/// Atom: `static constexpr execution_model execution`.
template <class B>
concept backend_has_execution = !requires { requires std::is_member_pointer_v<decltype(&B::execution)>; } &&
                                requires { typename std::integral_constant<execution_model, B::execution>; };

/// Atom: `static constexpr collective_set capabilities`.
template <class B>
concept backend_has_capabilities =
    !requires { requires std::is_member_pointer_v<decltype(&B::capabilities)>; } && requires {
      { B::capabilities } -> std::convertible_to<collective_set>;
      typename std::bool_constant<collective_set(B::capabilities).contains(collective::barrier)>;  // a constant
    };

/// Atom: `allocate_arena(bytes)` returns an owner of zeroed memory with `data()`, on a cache line; 0 bytes are allowed.
/// Gradients live there, and scratch.
template <class B>
concept backend_has_arena = requires(B& backend, std::size_t bytes) {
  { backend.allocate_arena(bytes).data() } -> std::same_as<std::byte*>;
  requires std::movable<decltype(backend.allocate_arena(bytes))>;
};

/// Atom: `abort(failure)`, from any thread: every rank's present or next collective throws; the first cause wins and is
/// returned.
template <class B>
concept backend_can_abort = requires(B& backend, failure cause) {
  { backend.abort(cause) } -> std::same_as<failure>;
};

/// Atom: `payload_bytes_sent()`: what this rank has sent since the start, without headers and control messages.
template <class B>
concept backend_counts_bytes = requires(const B& backend) {
  { backend.payload_bytes_sent() } -> std::same_as<std::uint64_t>;
};

/// A backend.
template <class B>
concept backend_policy =
    backend_has_rank<B> && backend_has_space<B> && backend_has_execution<B> && backend_has_capabilities<B> &&
    backend_has_arena<B> && backend_can_abort<B> && backend_counts_bytes<B> && describes_itself<B> && std::movable<B>;

/// Atoms of a host backend. `start(request)` begins a collective, one at a time. `poll()` drives it without blocking
/// and returns true once it is complete; it throws sync_error. `wait()` sleeps until poll() may get further, and throws
/// sync_error once the deadline has passed.
template <class B>
concept backend_can_start = requires(B& backend, const collective_request& request) { backend.start(request); };
template <class B>
concept backend_can_poll = requires(B& backend) {
  { backend.poll() } -> std::same_as<bool>;
};
template <class B>
concept backend_can_wait = requires(B& backend) { backend.wait(); };

/// A backend whose collectives are driven by the host.
template <class B>
concept host_backend = backend_policy<B> && backend_can_start<B> && backend_can_poll<B> && backend_can_wait<B> &&
                       (B::execution == execution_model::host);

/// Capabilities, each a concept of its own.
template <class B>
concept can_all_reduce = backend_has_capabilities<B> && B::capabilities.contains(collective::all_reduce);
template <class B>
concept can_reduce_scatter = backend_has_capabilities<B> && B::capabilities.contains(collective::reduce_scatter);
template <class B>
concept can_all_gather = backend_has_capabilities<B> && B::capabilities.contains(collective::all_gather);
template <class B>
concept can_all_to_all = backend_has_capabilities<B> && B::capabilities.contains(collective::all_to_all);
template <class B>
concept can_broadcast = backend_has_capabilities<B> && B::capabilities.contains(collective::broadcast);
template <class B>
concept can_barrier = backend_has_capabilities<B> && B::capabilities.contains(collective::barrier);

/// Given to `split` as a colour: this rank is in no group.
inline constexpr int no_group = -1;

/// Capability: `split(colour, key)`, which all ranks call at once, returns the backend of this rank's group: the ranks that
/// gave the same colour, by key, then by rank. A colour is at least 0; nothing is returned for no_group. As MPI_Comm_split
/// (MPI 4.0, section 7.4.2). What becomes of groups when a rank fails is in docs/reference/backend.md.
template <class B>
concept can_split = requires(B& backend, int colour, int key) {
  { backend.split(colour, key) } -> std::same_as<std::optional<B>>;
};

/// Says in one sentence which requirement of `backend_policy` B misses. Compiles for a backend.
template <class B>
consteval bool explain_backend() {
  static_assert(backend_has_rank<B>, "backend: rank() and size() must exist and return int");
  static_assert(backend_has_space<B>, "backend: add `static constexpr memory_space space`");
  static_assert(backend_has_execution<B>, "backend: add `static constexpr execution_model execution`");
  static_assert(backend_has_capabilities<B>, "backend: add `static constexpr collective_set capabilities`");
  static_assert(backend_has_arena<B>,
                "backend: allocate_arena(bytes) must return a movable owner whose data() is std::byte*");
  static_assert(backend_can_abort<B>, "backend: abort(failure) must exist and return the failure that came first");
  static_assert(backend_counts_bytes<B>, "backend: payload_bytes_sent() must exist and return std::uint64_t");
  static_assert(describes_itself<B>, "backend: describe(description&) must exist and be const");
  static_assert(std::movable<B>, "backend: it must be movable");
  if constexpr (backend_has_execution<B>) {
    if constexpr (B::execution == execution_model::host) {
      static_assert(backend_can_start<B>, "backend: a host backend needs start(const collective_request&)");
      static_assert(backend_can_poll<B>, "backend: a host backend needs poll(), returning bool");
      static_assert(backend_can_wait<B>, "backend: a host backend needs wait()");
    }
  }
  return backend_policy<B>;
}

/// The same for `host_backend`.
template <class B>
consteval bool explain_host_backend() {
  explain_backend<B>();
  if constexpr (backend_policy<B>) {
    static_assert(B::execution == execution_model::host,
                  "backend: its execution is stream, and this needs one that the host drives");
  }
  return host_backend<B>;
}

/// The same for a host backend that makes groups.
template <class B>
consteval bool explain_splitting_backend() {
  explain_host_backend<B>();
  static_assert(can_split<B>, "backend: split(int colour, int key) must exist and return std::optional of the backend");
  return host_backend<B> && can_split<B>;
}

/// Runs one collective to its end on the calling thread. Throws sync_error once all ranks have been told, with the cause
/// that came first on any: a rank that failed without a word would be taken for the cause by the others.
template <host_backend B>
void run_collective(B& backend, const collective_request& request) {
  try {
    backend.start(request);
    while (!backend.poll()) {
      backend.wait();
    }
  } catch (const sync_error& error) {
    throw sync_error(backend.abort(error.cause()));
  }
}

}  // namespace gradweave
