/// @file
/// The smallest model of each concept. A template that compiles with an archetype requires nothing beyond the concept;
/// a near-miss test breaks one thing of an archetype. They do nothing, or the least that the concept's meaning allows
/// in a job of one rank.
#pragma once

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/device/device_concept.hpp>
#include <gradweave/element.hpp>
#include <gradweave/error.hpp>
#include <gradweave/memory_space.hpp>
#include <gradweave/overlap/concept.hpp>
#include <gradweave/overlap/stream_concept.hpp>
#include <gradweave/tensor.hpp>
#include <gradweave/transport/concept.hpp>

namespace gradweave::testing {

/// An element that is no arithmetic type: four bytes in the format of float32.
struct element_archetype {
  std::uint32_t bits = 0;
};

/// A tensor of one element, by members. Neither copyable nor movable nor default constructible.
class tensor_archetype {
 public:
  explicit tensor_archetype(element_archetype& memory) : memory_(&memory) {}
  tensor_archetype(const tensor_archetype&) = delete;
  tensor_archetype& operator=(const tensor_archetype&) = delete;

  element_archetype* gradweave_data() { return memory_; }
  std::array<short, 1> gradweave_shape() const { return {1}; }

 private:
  element_archetype* memory_;
};

/// A tensor by tensor_traits, whose kind is known at run time only.
struct foreign_tensor_archetype {
  foreign_tensor_archetype() = delete;
  foreign_tensor_archetype(const foreign_tensor_archetype&) = delete;
  foreign_tensor_archetype& operator=(const foreign_tensor_archetype&) = delete;
};

/// An owner of arena memory: movable, and no more.
class arena_archetype {
 public:
  explicit arena_archetype(std::size_t bytes) : memory_(bytes) {}
  arena_archetype(arena_archetype&&) = default;
  arena_archetype& operator=(arena_archetype&&) = default;

  std::byte* data() { return memory_.data(); }

 private:
  std::vector<std::byte> memory_;
};

/// A backend of one rank that offers no collective. `execution` says stream, so it owes no start, poll and wait.
struct backend_archetype {
  static constexpr memory_space space = memory_space::host;
  static constexpr execution_model execution = execution_model::stream;
  static constexpr collective_set capabilities = {};

  backend_archetype() = default;
  backend_archetype(backend_archetype&&) = default;
  backend_archetype& operator=(backend_archetype&&) = default;

  int rank() const { return 0; }
  int size() const { return 1; }
  arena_archetype allocate_arena(std::size_t bytes) { return arena_archetype(bytes); }
  failure abort(failure cause) { return cause; }
  std::uint64_t payload_bytes_sent() const { return 0; }
  void describe(description& sink) const { sink.add("name", "archetype"); }
};

/// A backend of one rank that the host drives: each collective is complete as soon as it has begun. Of the collectives
/// it offers those that a synchronizer needs.
struct host_backend_archetype {
  static constexpr memory_space space = memory_space::host;
  static constexpr execution_model execution = execution_model::host;
  static constexpr collective_set capabilities = {collective::all_gather, collective::broadcast};

  host_backend_archetype() = default;
  host_backend_archetype(host_backend_archetype&&) = default;
  host_backend_archetype& operator=(host_backend_archetype&&) = default;

  int rank() const { return 0; }
  int size() const { return 1; }
  arena_archetype allocate_arena(std::size_t bytes) { return arena_archetype(bytes); }
  failure abort(failure cause) { return cause; }
  std::uint64_t payload_bytes_sent() const { return 0; }
  void describe(description& sink) const { sink.add("name", "archetype"); }

  void start(const collective_request&) {}
  bool poll() { return true; }
  void wait() {}
};

/// A handle, copied and compared.
struct stream_archetype {
  explicit stream_archetype(int) {}
  friend bool operator==(stream_archetype, stream_archetype) { return true; }
};

/// A stream backend of one rank: there is nothing to do. Of the collectives it offers those that a synchronizer needs.
struct stream_backend_archetype {
  using stream = stream_archetype;
  static constexpr memory_space space = memory_space::host;
  static constexpr execution_model execution = execution_model::stream;
  static constexpr collective_set capabilities = {collective::all_gather, collective::broadcast};

  stream_backend_archetype() = default;
  stream_backend_archetype(stream_backend_archetype&&) = default;
  stream_backend_archetype& operator=(stream_backend_archetype&&) = default;

  int rank() const { return 0; }
  int size() const { return 1; }
  arena_archetype allocate_arena(std::size_t bytes) { return arena_archetype(bytes); }
  failure abort(failure cause) { return cause; }
  std::uint64_t payload_bytes_sent() const { return 0; }
  void describe(description& sink) const { sink.add("name", "archetype"); }

  void enqueue(const collective_request&, stream) {}
  void check() {}
  host_backend_archetype& control() { return control_; }

 private:
  host_backend_archetype control_;
};

/// The transport of a job of one rank: there is no peer.
class transport_archetype {
 public:
  transport_archetype() = default;
  transport_archetype(transport_archetype&&) = default;
  transport_archetype& operator=(transport_archetype&&) = default;

  int rank() const { return 0; }
  int size() const { return 1; }
  std::size_t try_send(int, std::span<const std::byte>) { return 0; }
  std::size_t try_receive(int, std::span<std::byte>) { return 0; }
  bool try_send_control(int, const control_message&) { return false; }
  bool try_receive_control(int, control_message&) { return false; }
  bool peer_closed(int) { return true; }
  failure abort(failure cause) {
    first_ = first_ ? first_ : cause;
    return *first_;
  }
  const failure* aborted() { return first_ ? &*first_ : nullptr; }
  std::uint64_t events() { return 0; }
  void wait(std::uint64_t, deadline) {}
  deadline now() const { return std::chrono::steady_clock::now(); }
  std::uint64_t payload_bytes_sent() const { return 0; }

 private:
  std::optional<failure> first_;
};

/// What all policies share: a copyable value without a default that compares and describes itself.
struct policy_archetype {
  explicit policy_archetype(int) {}
  friend bool operator==(const policy_archetype&, const policy_archetype&) { return true; }
  void describe(description& sink) const { sink.add("name", "archetype"); }
};

/// Every slot a bucket, in registration order.
struct bucketing_archetype : policy_archetype {
  using policy_archetype::policy_archetype;

  bucket_plan plan(const bucketing_input& input) const {
    bucket_plan made;
    for (std::size_t i = 0; i < input.slots.size(); ++i) {
      made.buckets.push_back({slot{static_cast<std::uint32_t>(i)}});
    }
    return made;
  }
  bool replans_after(std::uint64_t) const { return false; }
};

/// The coarsest codec: no bytes, all values come back as zero. It never sees a kind, so it loses nothing.
struct codec_archetype : policy_archetype {
  using policy_archetype::policy_archetype;
  static constexpr std::size_t block_elements = 1;

  bool supports(element_kind) const { return false; }
  std::size_t wire_bytes(std::size_t) const { return 0; }
  std::size_t encode(std::span<const float>, std::span<std::byte>) const { return 0; }
  void decode(std::span<const std::byte>, std::span<float> values) const {
    for (float& value : values) {
      value = 0;
    }
  }
};

/// A program without a stage: right where there is one rank, whose average is what the bucket holds.
class program_archetype {
 public:
  explicit program_archetype(int) {}
  program_archetype(program_archetype&&) = default;
  program_archetype& operator=(program_archetype&&) = default;

  std::size_t scratch_bytes() const { return 0; }
  std::optional<collective_request> run(int, std::span<std::byte>) { return std::nullopt; }
  std::size_t non_finite() const { return 0; }
};

struct compression_archetype : policy_archetype {
  using policy_archetype::policy_archetype;
  static constexpr collective_set collectives = {};

  bool compresses(element_kind) const { return false; }
  program_archetype prepare(const bucket_layout&, program_world) const { return program_archetype(0); }
};

/// A lane that can be neither copied nor moved. It runs the work on the caller.
template <lane_work Work>
class lane_archetype {
 public:
  explicit lane_archetype(Work& work) : work_(work) {}
  lane_archetype(const lane_archetype&) = delete;
  lane_archetype& operator=(const lane_archetype&) = delete;

  void notify() noexcept {}
  void drain() {
    while (work_.advance() != lane_status::finished) {
      work_.wait();
    }
  }

 private:
  Work& work_;
};

struct overlap_archetype : policy_archetype {
  using policy_archetype::policy_archetype;

  template <lane_work Work>
  lane_archetype<Work> make_lane(Work& work) const {
    return lane_archetype<Work>(work);
  }
};

/// Kernels that have nothing to do.
class device_kernels_archetype {
 public:
  struct stream {
    explicit stream(int) {}
  };
  struct extent_table {
    explicit extent_table(int) {}
    extent_table(extent_table&&) = default;
    extent_table& operator=(extent_table&&) = default;
  };

  explicit device_kernels_archetype(int) {}
  device_kernels_archetype(device_kernels_archetype&&) = default;
  device_kernels_archetype& operator=(device_kernels_archetype&&) = default;

  extent_table prepare(std::span<const extent>, element_kind) const { return extent_table(0); }
  void gather(stream, extent_table&, std::byte*) const {}
  void scatter(stream, extent_table&, const std::byte*, scatter_summary*) const {}
  void scale(stream, const scale_request&) const {}
  void encode(stream, const encode_request&) const {}
  void sum(stream, const sum_request&) const {}
  void write_record(stream, const record_request&) const {}
  void judge_records(stream, const judge_request&) const {}
};

/// A device on which everything is over at once.
class stream_device_archetype {
 public:
  using stream = stream_archetype;
  struct event {
    explicit event(int) {}
    event(event&&) = default;
    event& operator=(event&&) = default;
  };
  struct stream_owner {
    explicit stream_owner(int) {}
    stream_owner(stream_owner&&) = default;
    stream_owner& operator=(stream_owner&&) = default;
    stream get() const { return stream(0); }
  };
  struct kernels_on_stream : device_kernels_archetype {
    using device_kernels_archetype::device_kernels_archetype;
    using stream = stream_device_archetype::stream;
    void gather(stream, extent_table&, std::byte*) const {}
    void scatter(stream, extent_table&, const std::byte*, scatter_summary*) const {}
    void scale(stream, const scale_request&) const {}
    void encode(stream, const encode_request&) const {}
    void sum(stream, const sum_request&) const {}
    void write_record(stream, const record_request&) const {}
    void judge_records(stream, const judge_request&) const {}
  };

  explicit stream_device_archetype(int) {}
  stream_device_archetype(stream_device_archetype&&) = default;
  stream_device_archetype& operator=(stream_device_archetype&&) = default;

  void enter() const {}
  stream_owner make_stream() const { return stream_owner(0); }
  event make_event() const { return event(0); }
  void record(event&, stream) const {}
  void wait(stream, const event&) const {}
  bool is_reached(const event&) const { return true; }
  arena_archetype allocate_pinned(std::size_t bytes) const { return arena_archetype(bytes); }
  void copy_to_host(stream, std::byte*, const std::byte*, std::size_t) const {}
  void synchronize(stream) const {}
  const kernels_on_stream& kernels() const { return kernels_; }

 private:
  kernels_on_stream kernels_{0};
};

struct stream_overlap_archetype : overlap_archetype {
  using overlap_archetype::overlap_archetype;
  stream_device_archetype make_device() const { return stream_device_archetype(0); }
  std::chrono::milliseconds deadline() const { return std::chrono::milliseconds(1); }
};

struct stream_program_archetype {
  explicit stream_program_archetype(int) {}
  stream_program_archetype(stream_program_archetype&&) = default;
  stream_program_archetype& operator=(stream_program_archetype&&) = default;

  std::size_t scratch_bytes() const { return 0; }
  template <class Context>
  std::optional<collective_request> enqueue(int, const Context&) {
    return std::nullopt;
  }
};

struct stream_compression_archetype : compression_archetype {
  using compression_archetype::compression_archetype;
  template <device_kernels Kernels>
  stream_program_archetype prepare_stream(const bucket_layout&, program_world, const Kernels&) const {
    return stream_program_archetype(0);
  }
};

}  // namespace gradweave::testing

template <>
struct gradweave::element_traits<gradweave::testing::element_archetype> {
  static constexpr element_kind kind = element_kind::float32;
};

template <>
struct gradweave::tensor_traits<gradweave::testing::foreign_tensor_archetype> {
  static void* data(testing::foreign_tensor_archetype&) { return nullptr; }
  static element_kind kind(const testing::foreign_tensor_archetype&) { return element_kind::float32; }
  static std::array<int, 1> shape(const testing::foreign_tensor_archetype&) { return {0}; }
};

namespace gradweave::testing {

static_assert(element<element_archetype>);
static_assert(gradient_tensor<tensor_archetype> && !rebindable_tensor<tensor_archetype>);
static_assert(gradient_tensor<foreign_tensor_archetype> && !tensor_view<foreign_tensor_archetype>);
static_assert(backend_policy<backend_archetype> && !host_backend<backend_archetype>);
static_assert(host_backend<host_backend_archetype> && !can_all_reduce<host_backend_archetype>);
static_assert(stream_backend<stream_backend_archetype> && !can_all_reduce<stream_backend_archetype>);
static_assert(byte_transport<transport_archetype>);
static_assert(bucketing_policy<bucketing_archetype>);
static_assert(codec<codec_archetype> && !compression_policy<codec_archetype>);
static_assert(stage_program<program_archetype>);
static_assert(compression_policy<compression_archetype> && !codec<compression_archetype>);
static_assert(lane_work<lane_work_archetype>);
static_assert(lane<lane_archetype<lane_work_archetype>> && overlap_policy<overlap_archetype>);
static_assert(device_kernels<device_kernels_archetype>);
static_assert(stream_device<stream_device_archetype> && stream_overlap_policy<stream_overlap_archetype>);
static_assert(stream_compression<stream_compression_archetype, device_kernels_archetype>);
static_assert(!stream_compression<compression_archetype, device_kernels_archetype>);

}  // namespace gradweave::testing
