/// @file
/// `synchronizer` over a stream backend: steps are enqueued on streams, and the host waits for none of them.
#pragma once

#include <concepts>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <utility>

#include <gradweave/backend/stream_concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/device/records.hpp>
#include <gradweave/diagnostics/options.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/overlap/stream_concept.hpp>
#include <gradweave/statistics.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer.hpp>
#include <gradweave/synchronizer/stream_engine.hpp>
#include <gradweave/synchronizer/stream_step.hpp>

namespace gradweave {

/// Keeps gradients in step over ranks, on streams. One thread begins and ends steps; within a step any thread may call
/// `ready`. The host may be two steps ahead of the device, so a failure can be known a step later than it happens:
/// `step_valid` tells kernels at once. After a failure it throws the same sync_error at every call.
template <stream_backend Backend, bucketing_policy Bucketing, compression_policy Compression,
          stream_overlap_policy Overlap>
class synchronizer<Backend, Bucketing, Compression, Overlap> {
  static_assert(can_all_gather<Backend> && can_broadcast<Backend>,
                "synchronizer: the backend must offer all_gather and broadcast; the step record and the parameters "
                "travel by them");
  static_assert(
      can_all_gather<control_of<Backend>> && can_broadcast<control_of<Backend>>,
      "synchronizer: the backend's control must offer all_gather and broadcast; the manifest's comparison and "
      "plans travel by them");
  static_assert(Backend::capabilities.contains(collective_set(Compression::collectives)),
                "synchronizer: the backend lacks a collective that the compression policy needs; choose another "
                "compression, or another backend");
  static_assert(std::same_as<typename Backend::stream, typename device_of<Overlap>::stream>,
                "synchronizer: the backend's streams are not those of the overlap policy's device");
  static_assert(explain_stream_compression<Compression, kernels_of<device_of<Overlap>>>());

  using engine_type = detail::stream_engine<Backend, Bucketing, Compression, Overlap>;

 public:
  using stream = typename Backend::stream;
  using step_type = open_stream_step<engine_type>;
  using accumulation_type = open_stream_step<engine_type, step_purpose::accumulate>;

  /// Seals: compares the manifest and the policies over all ranks, points arena gradients into the arena, agrees on the
  /// plan, and broadcasts the parameters. Gradients with memory of their own are worked on where they are, and have to stay
  /// there. Throws sync_error on every rank where they differ, and contract_violation for what a stream can't do.
  synchronizer(manifest gradients, Backend backend, Bucketing bucketing, Compression compression, Overlap overlap,
               const step_rules& rules = {}, const diagnostics_options& = {})
      : engine_(std::make_unique<engine_type>(std::move(gradients), std::move(backend), std::move(bucketing),
                                              std::move(compression), std::move(overlap), rules)) {}

  int rank() const { return engine_->rank(); }
  int size() const { return engine_->size(); }

  /// Begins a step; waits while the device is two steps behind. Throws sync_error after a failure.
  [[nodiscard]] step_type begin_step(const step_options& options = {}) { return step_type(*engine_, options); }

  /// Runs `backward(step)` and ends the step as finish(on) does. An exception in it is told to every rank and rethrown here.
  template <std::invocable<step_type&> Backward>
  void step(stream on, Backward&& backward, const step_options& options = {}) {
    step_type current = begin_step(options);
    run(current, std::forward<Backward>(backward));
    current.finish(on);
  }

  /// Begins a backward pass whose gradients stay on this rank: a later step sends the sums that the trainer makes.
  [[nodiscard]] accumulation_type begin_accumulation() { return accumulation_type(*engine_); }

  /// Runs `backward(step)` as such a pass.
  template <std::invocable<accumulation_type&> Backward>
  void accumulate(Backward&& backward) {
    accumulation_type current = begin_accumulation();
    run(current, std::forward<Backward>(backward));
    current.finish();
  }

  /// Returns once the last step that was finished is over on the device, with what all ranks know of it. Throws sync_error
  /// where it failed.
  step_result synchronize() { return engine_->synchronize(); }

  /// In the device's memory: 1 once a stream that has waited for a step's end finds that all ranks ended it, and until the next
  /// one ends. A kernel of an optimizer that sees anything else leaves parameters as they are.
  const std::uint32_t* step_valid() const { return &engine_->verdict()->is_valid; }

  /// The whole verdict, likewise: with whether all encoded values were finite.
  const step_verdict* verdict() const { return engine_->verdict(); }

  /// The present plan: buckets in launch order.
  const bucket_plan& plan() const { return engine_->plan(); }

  /// Sums over the steps that are over on the device. Times are not measured on streams.
  sync_statistics statistics() const { return engine_->statistics(); }

 private:
  template <class Step, class Backward>
  static void run(Step& current, Backward&& backward) {
    try {
      std::forward<Backward>(backward)(current);
    } catch (const std::exception& thrown) {
      current.abandon((std::string("an exception in the backward pass: ") + thrown.what()).c_str());
      throw;
    }
  }

  std::unique_ptr<engine_type> engine_;
};

}  // namespace gradweave
