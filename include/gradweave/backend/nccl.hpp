/// @file
/// The NCCL backend: ranks have a device each, and collectives run on its streams. What the host has to know travels by a
/// backend of the host's, over which ranks also meet. docs/reference/nccl.md describes it.
#pragma once

#include <cuda_runtime_api.h>
#include <nccl.h>

#include <algorithm>
#include <chrono>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/backend/nccl/calls.hpp>
#include <gradweave/backend/nccl/collectives.hpp>
#include <gradweave/backend/nccl/communicator.hpp>
#include <gradweave/backend/nccl/comparison.hpp>
#include <gradweave/backend/nccl/memory.hpp>
#include <gradweave/backend/nccl/relatives.hpp>
#include <gradweave/backend/nccl/topology.hpp>
#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/description.hpp>
#include <gradweave/device/concept.hpp>
#include <gradweave/diagnostics/options.hpp>
#include <gradweave/environment_variable.hpp>
#include <gradweave/error.hpp>
#include <gradweave/extent.hpp>
#include <gradweave/memory_space.hpp>

namespace gradweave::backend {

/// What an NCCL backend may be told. All but `device` is the same on all ranks.
struct nccl_options {
  /// What the calling thread has chosen by cudaSetDevice.
  static constexpr int current_device = -1;

  /// The ordinal of this rank's device.
  int device = current_device;
  /// How long a rank waits for the others while they set up, and for NCCL to take up a collective: what is under way on
  /// streams is watched by the lane.
  std::chrono::milliseconds timeout = std::chrono::minutes(5);
  /// Whether averages are by ncclAvg, which rounds as NCCL sees fit, in place of a sum and one multiplication.
  bool averages_by_nccl = false;
  /// Whether arenas are registered with NCCL.
  bool registers_memory = true;
  /// Whether ranks compare each collective before it is launched: see docs/reference/nccl.md. GRADWEAVE_DEBUG=detail on any
  /// rank asks for it too.
  bool compares_collectives = false;

  friend bool operator==(const nccl_options&, const nccl_options&) = default;
};

/// Models stream_backend. `Kernels` scale sums; `Control` is what ranks meet over, a tcp backend or, for ranks that are
/// threads of one process, a loopback.
template <std::movable Kernels, host_backend Control>
  requires kernels_have_streams<Kernels> && kernels_can_scale<Kernels> &&
           std::same_as<typename Kernels::stream, cudaStream_t>
class nccl {
 public:
  using stream = cudaStream_t;
  static constexpr memory_space space = memory_space::cuda;
  static constexpr execution_model execution = execution_model::stream;
  static constexpr collective_set capabilities = {collective::all_reduce, collective::reduce_scatter,
                                                  collective::all_gather, collective::all_to_all,
                                                  collective::broadcast};

  /// Sets up a communicator of control's ranks; all of them do so at once. Throws sync_error, on every rank, where that fails on
  /// any.
  nccl(Control control, Kernels kernels, nccl_options options = {})
      : control_(std::move(control)), kernels_(std::move(kernels)), options_(options) {
    told([&] {
      require(options.timeout.count() > 0, "nccl: the timeout must be positive");
      const int version = detail::loaded_nccl_version();
      if (options_.device == nccl_options::current_device) {
        detail::check_runtime(cudaGetDevice(&options_.device), "cudaGetDevice");
      }
      relatives_ = std::make_shared<detail::nccl_relatives>(options_.device);
      const auto level = diagnostics_options_from(environment_variable).debug;
      options_.compares_collectives = options_.compares_collectives || level == debug_level::detail;
      agree(version);
      set_up();
    });
  }

  int rank() const { return control_.rank(); }
  int size() const { return control_.size(); }
  int device() const { return options_.device; }
  Control& control() { return control_; }

  /// The backend of this rank's group, see can_split, over a communicator of its own. Throws sync_error, on every rank, where
  /// any rank failed, and contract_violation for a colour below 0 that is not no_group.
  std::optional<nccl> split(int colour, int key)
    requires can_split<Control> && std::copyable<Kernels>
  {
    std::optional<nccl> group;
    told([&] {
      std::optional<Control> control = control_.split(colour, key);
      if (control) {
        group = nccl(std::move(*control), *this);
      }
      detail::gather_values(control_, std::byte{1});  // nobody has a group unless all have theirs
    });
    return group;
  }

  /// Memory of the device. Throws sync_error where there is none.
  detail::nccl_memory allocate_arena(std::size_t bytes) {
    detail::nccl_memory made(communicator_, bytes, options_.registers_memory);
    if (bytes != 0 && (memory_in_words_.empty() || made.in_words().ends_with(')'))) {
      memory_in_words_ = made.in_words();
    }
    return made;
  }

  /// For an all_reduce, a broadcast, a reduce_scatter or an all_gather extents are cut alike on all ranks. In an all_to_all what
  /// two ranks exchange lies in one extent on either side.
  void enqueue(const collective_request& request, stream on) {
    relatives_->throw_if_given_up();
    const detail::nccl_launch checked = launch_of(request, on, nullptr);
    checked.check();
    const detail::nccl_relatives::turn turn(*relatives_, id_);
    if (comparison_) {
      comparison_->compare(request, turn.before());
    }
    turn.await(on);
    communicator_->call(to_string(request.operation).data(),
                        [&](ncclComm_t communicator) { return launch_of(request, on, communicator).run(); });
    turn.mark(on);
    scale(checked);
    sent_ += size() > 1 ? detail::ring_bytes(checked) : 0;
  }

  /// Throws sync_error with NCCL's last error text for what has failed since.
  void check() {
    relatives_->throw_if_given_up();
    communicator_->check();
  }

  /// All communicators that this rank has in the job are flagged, then the ranks settle on one story, then the communicators
  /// are aborted: what NCCL says of that on other ranks comes too late to be a cause.
  failure abort(failure cause) {
    if (relatives_ != nullptr) {
      relatives_->flag();
    }
    failure story = control_.abort(std::move(cause));
    if (relatives_ != nullptr) {
      relatives_->give_up(story);
    }
    return story;
  }

  /// As if NCCL's collectives were rings: it does not tell.
  std::uint64_t payload_bytes_sent() const { return sent_; }

  void describe(description& sink) const {
    sink.add("name", "nccl");
    sink.add("size", size());
    sink.add("version", detail::nccl_version_in_words(version_));
    sink.add("timeout_ms", options_.timeout.count());
    sink.add("averages_by_nccl", options_.averages_by_nccl);
    sink.add("registers_memory", options_.registers_memory);
    sink.add("compares_collectives", comparison_.has_value());
    sink.nest("control", control_);
  }

  /// What is this rank's own: the memory that it got, its device, NCCL's variables.
  void describe_here(description& sink) const {
    if (!memory_in_words_.empty()) {
      sink.add("arena", memory_in_words_);
    }
    detail::describe_surroundings(sink, options_.device);
    if constexpr (requires { control_.describe_here(sink); }) {
      control_.describe_here(sink);
    }
  }

 private:
  /// What ranks compare before NCCL hears of anything.
  struct facts {
    std::int32_t version = 0;
    std::int32_t compares = 0;
    char device[16] = {};  // its UUID
  };

  /// A group, in the job of `parent`.
  nccl(Control control, const nccl& parent)
      : control_(std::move(control)),
        kernels_(parent.kernels_),
        options_(parent.options_),
        relatives_(parent.relatives_),
        version_(parent.version_) {
    told([&] { set_up(); });
  }

  /// What goes wrong in `body` on this rank is told to all.
  template <class Body>
  void told(Body&& body) {
    try {
      body();
    } catch (const sync_error& error) {
      failure cause = error.cause();
      cause.rank = cause.rank < 0 && cause.code == errc::internal ? rank() : cause.rank;
      throw sync_error(abort(std::move(cause)));
    } catch (const std::exception& fault) {
      abort({errc::aborted, rank(), -1, -1, {}, fault.what()});
      throw;
    }
  }

  /// Throws sync_error where ranks have different versions, or one device. All compare where one wants to.
  void agree(int version) {
    version_ = version;
    facts own{version, options_.compares_collectives ? 1 : 0, {}};
    cudaDeviceProp properties{};
    detail::check_runtime(cudaGetDeviceProperties(&properties, options_.device), "cudaGetDeviceProperties");
    std::memcpy(own.device, &properties.uuid, std::min(sizeof own.device, sizeof properties.uuid));
    const std::vector<facts> all = detail::gather_values(control_, own);
    for (std::size_t r = 0; r < all.size(); ++r) {
      options_.compares_collectives = options_.compares_collectives || all[r].compares != 0;
      if (all[r].version != all[0].version) {
        refuse(static_cast<int>(r), "rank 0 has NCCL " + detail::nccl_version_in_words(all[0].version) + " and rank " +
                                        std::to_string(r) + " has " + detail::nccl_version_in_words(all[r].version));
      }
      for (std::size_t other = 0; other < r; ++other) {
        if (std::memcmp(all[r].device, all[other].device, sizeof own.device) == 0) {
          refuse(static_cast<int>(r), "rank " + std::to_string(other) + " and rank " + std::to_string(r) +
                                          " have the same device, which NCCL does not take; call cudaSetDevice with "
                                          "the rank's number on its host first");
        }
      }
    }
  }

  [[noreturn]] static void refuse(int rank, std::string why) {
    throw sync_error({errc::manifest_mismatch, rank, -1, -1, {}, std::move(why)});
  }

  /// The communicator, and what comparing needs. All ranks look after each other meanwhile, over control.
  void set_up() {
    ncclUniqueId id{};
    if (rank() == 0) {
      const detail::device_scope scope(options_.device);
      if (const ncclResult_t code = ncclGetUniqueId(&id); code != ncclSuccess) {
        throw sync_error(detail::nccl_failure("ncclGetUniqueId", code, nullptr, rank()));
      }
    }
    const extent whole{reinterpret_cast<std::byte*>(&id), sizeof id, 0};
    run_collective(control_, {.operation = collective::broadcast, .root = 0, .data = {&whole, 1}});
    for (const char each : id.internal) {
      id_ = (id_ ^ static_cast<unsigned char>(each)) * 0x100000001b3U;  // FNV-1a
    }
    communicator_ = std::make_shared<detail::nccl_communicator>(options_.device, options_.timeout);
    relatives_->add(id_, communicator_);
    communicator_->begin_set_up(id, size(), rank());
    await_set_up();
    if (options_.compares_collectives) {
      if constexpr (can_split<Control>) {
        comparison_.emplace(control_.split(0, rank()).value());
      } else {
        violate("nccl: collectives are compared over a group of control's; give one that can split");
      }
    }
  }

  /// Rank by rank NCCL gets ready; a rank that fails meanwhile, or is gone, is told by control, not by NCCL.
  void await_set_up() {
    constexpr std::chrono::milliseconds slice{20};
    const auto until = detail::nccl_communicator::clock::now() + options_.timeout;
    for (;;) {
      const bool is_ready = communicator_->is_set_up(slice);
      const std::vector<std::byte> all = detail::gather_values(control_, std::byte(is_ready ? 1 : 0));
      const auto late = std::find(all.begin(), all.end(), std::byte{0});
      if (late == all.end()) {
        return;
      }
      if (detail::nccl_communicator::clock::now() > until) {
        const auto who = static_cast<int>(late - all.begin());
        throw sync_error({errc::timed_out,
                          who,
                          -1,
                          -1,
                          {},
                          "NCCL is not set up within " + std::to_string(options_.timeout.count()) +
                              " ms, first on rank " + std::to_string(who) + "; NCCL_DEBUG=INFO shows what it does"});
      }
    }
  }

  bool averages_by_nccl(const collective_request& request) const {
    return options_.averages_by_nccl && request.reduce.operation == reduction_operation::sum &&
           request.reduce.divisor == static_cast<std::uint32_t>(size());
  }

  detail::nccl_launch launch_of(const collective_request& request, stream on, ncclComm_t communicator) const {
    const ncclRedOp_t operation =
        averages_by_nccl(request) ? ncclAvg : detail::nccl_operation(request.reduce.operation);
    return {request, rank(), size(), operation, communicator, on};
  }

  /// Divides what this rank has of the result.
  void scale(const detail::nccl_launch& launch) {
    const collective_request& request = launch.request;
    const bool reduces = request.operation == collective::all_reduce || request.operation == collective::reduce_scatter;
    if (!reduces || request.reduce.divisor == 1 || averages_by_nccl(request)) {
      return;
    }
    const detail::device_scope scope(options_.device);
    const bool is_cut = request.operation == collective::reduce_scatter;
    for_each_piece(request.data, is_cut ? launch.begin_of(rank()) : 0,
                   is_cut ? launch.bytes_of(rank()) : total_bytes(request.data),
                   [&](std::byte* memory, std::size_t bytes) {
                     kernels_.scale(launch.stream, {.kind = request.kind,
                                                    .values = memory,
                                                    .elements = bytes / launch.width(),
                                                    .factor = 1.0 / request.reduce.divisor});
                   });
  }

  Control control_;  // goes last, so that nobody is missed while a communicator ends
  Kernels kernels_;
  nccl_options options_;
  std::shared_ptr<detail::nccl_relatives> relatives_;
  int version_ = 0;
  std::uint64_t id_ = 0xcbf29ce484222325U;
  std::shared_ptr<detail::nccl_communicator> communicator_;
  std::optional<detail::collective_comparison<Control>> comparison_;
  std::string memory_in_words_;
  std::uint64_t sent_ = 0;
};

}  // namespace gradweave::backend
