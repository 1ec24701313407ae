/// @file
/// `synchronizer`: a sealed manifest with its backend and policies. It names no model of a concept; the umbrella header
/// has the defaults.
#pragma once

#include <algorithm>
#include <cstddef>
#include <exception>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gradweave/assert.hpp>
#include <gradweave/backend/concept.hpp>
#include <gradweave/bucketing/concept.hpp>
#include <gradweave/compression/concept.hpp>
#include <gradweave/diagnostics/options.hpp>
#include <gradweave/element.hpp>
#include <gradweave/manifest.hpp>
#include <gradweave/overlap/concept.hpp>
#include <gradweave/statistics.hpp>
#include <gradweave/step_rules.hpp>
#include <gradweave/synchronizer/engine.hpp>
#include <gradweave/synchronizer/policies.hpp>
#include <gradweave/synchronizer/report.hpp>
#include <gradweave/synchronizer/start_report.hpp>
#include <gradweave/synchronizer/step.hpp>

namespace gradweave {

/// Keeps gradients in step over ranks. One thread begins and ends steps; within a step any thread may call `ready`.
/// After a failure it throws the same sync_error at every call: make a new one, with a new backend.
///
/// This one is for host backends; synchronizer/stream_synchronizer.hpp has the one for stream backends.
template <backend_policy Backend, bucketing_policy Bucketing, compression_policy Compression, overlap_policy Overlap>
class synchronizer {
  static_assert(host_backend<Backend>, "synchronizer: the backend is neither a host backend nor a stream backend");
  static_assert(can_all_gather<Backend> && can_broadcast<Backend>,
                "synchronizer: the backend must offer all_gather and broadcast; the step record and the manifest's "
                "comparison travel by them");
  static_assert(Backend::capabilities.contains(collective_set(Compression::collectives)),
                "synchronizer: the backend lacks a collective that the compression policy needs; choose another "
                "compression, or another backend");

  using engine_type = detail::engine<Backend, Bucketing, Compression, Overlap>;

 public:
  using step_type = open_step<engine_type>;
  using accumulation_type = open_step<engine_type, step_purpose::accumulate>;

  /// Seals: compares the manifest and the policies over all ranks, points arena gradients into the arena, agrees on the
  /// plan, and broadcasts the parameters from rank 0. Throws sync_error on every rank where they differ.
  synchronizer(manifest gradients, Backend backend, Bucketing bucketing, Compression compression, Overlap overlap,
               const step_rules& rules = {}, const diagnostics_options& diagnostics = {})
      : engine_(std::make_unique<engine_type>(std::move(gradients), std::move(backend), std::move(bucketing),
                                              std::move(compression), std::move(overlap), rules, diagnostics)) {
    if (diagnostics.debug != debug_level::off && rank() == 0) {
      detail::print_start_report(*engine_);
    }
  }

  int rank() const { return engine_->rank(); }
  int size() const { return engine_->size(); }

  /// Begins a step as an object, for those who can't use a scope. Throws sync_error after a failure.
  [[nodiscard]] step_type begin_step(const step_options& options = {}) { return step_type(*engine_, options); }

  /// Runs `backward(step)` and ends the step. An exception in it is told to every rank and rethrown here. When `step`
  /// returns, all gradients are averages over ranks, bit-identical on all of them.
  template <std::invocable<step_type&> Backward>
  step_result step(Backward&& backward, const step_options& options = {}) {
    return run(begin_step(options), std::forward<Backward>(backward));
  }

  /// Begins a backward pass whose gradients stay on this rank: the trainer adds up those of several, and a step sends the
  /// sums. All ranks accumulate equally often before a step, or it throws sync_error on all of them.
  [[nodiscard]] accumulation_type begin_accumulation() { return accumulation_type(*engine_); }

  /// Runs `backward(step)` as such a pass. An exception in it is told to every rank and rethrown here.
  template <std::invocable<accumulation_type&> Backward>
  void accumulate(Backward&& backward) {
    run(begin_accumulation(), std::forward<Backward>(backward));
  }

  /// From the next step on calls `told(slots)` as soon as a bucket's gradients are averages, with those of its slots that
  /// were used, in the plan's order: an optimizer can update their parameters while others still travel. It runs on the
  /// lane, one call at a time; gradients that only other ranks have used come at the end of the step, on the caller's
  /// thread. Should a rank fail in the step, some ranks may have been told and others not: then go back to a checkpoint.
  /// What it throws fails the step on every rank. Null: none.
  void on_reduced(std::function<void(std::span<const slot>)> told) { engine_->on_reduced(std::move(told)); }

  /// For a rank that has no data left while others have: takes part in their steps with zeros until all ranks have called
  /// this, and calls `after_step()` after each, where its gradients are the averages that all ranks have. Update the
  /// parameters there as after any other step, and all ranks end with the same ones. Throws as a step does, and
  /// contract_violation, which every rank is told, where this rank has accumulated and not sent.
  template <std::invocable AfterStep>
  void join(AfterStep&& after_step) {
    refuse(engine_->accumulated() != 0,
           "join: this rank has accumulated gradients that no step has sent; end the last window with a step");
    while (size() > 1 && engine_->shadow_step()) {
      try {
        after_step();
      } catch (const std::exception& thrown) {
        engine_->abandon((std::string("an exception in join: ") + thrown.what()).c_str());
        throw;
      }
    }
  }

  /// The same without updates: at the end the registered parameters, which must still exist, are taken over from a rank
  /// that had data to the last. Throws contract_violation, which every rank is told, where parameters::compare_every is set:
  /// it would find those that were not updated.
  void join() {
    refuse(engine_->rules().values.compare_every != 0,
           "join: without updates parameters differ until its end, and parameters::compare_every compares them before; "
           "pass a function that updates them, or leave compare_every out");
    if (size() > 1) {
      join([] {});
      engine_->broadcast_parameters_of_last();
    }
  }

  /// Compares the parameters of all ranks, between steps; every rank has to call it. Throws sync_error on all of them where
  /// any differs, and names the first slot that does. The registered parameters must still exist.
  void compare_parameters() { engine_->compare_parameters(); }

  /// Where the collectives keep a slot's gradient: for a tensor with memory of its own the copy in the arena, which one
  /// rank alone never makes.
  template <element Element>
  std::span<Element> gradient(slot which) {
    require(which.index < engine_->gradients().size(), "gradient: the slot is not one of this manifest's");
    const gradient_view& view = engine_->gradients().entries()[which.index].gradient;
    require(view.kind() == element_kind_of<Element>, "gradient: the slot has another element kind");
    return {reinterpret_cast<Element*>(engine_->gradients().memory(which)), view.elements()};
  }

  /// The present plan: buckets in launch order, with a slot in each for every slice of it.
  const bucket_plan& plan() const { return engine_->plan(); }

  /// Sums over the steps since the start.
  const sync_statistics& statistics() const { return engine_->meter().totals(); }

  /// The step that ended last, bucket by bucket. The next one that ends replaces it.
  const step_statistics& last_step() const { return engine_->meter().last_step(); }

  /// By rank: how often the others waited for it.
  std::span<const rank_statistics> ranks() const { return engine_->meter().ranks(); }

  /// Set-up and totals in words, a few lines.
  std::string report() const {
    detail::report_input input{.rank = rank(),
                               .said = engine_->describe(),
                               .here = engine_->describe_here(),
                               .slots = engine_->gradients().size(),
                               .buckets = engine_->plan().buckets.size(),
                               .uncompressed = {},
                               .statistics = statistics(),
                               .ranks = ranks()};
    bool compresses_any = false;
    for (const manifest_entry& entry : engine_->gradients().entries()) {
      const element_kind kind = entry.gradient.kind();
      compresses_any = compresses_any || engine_->compresses(kind);
      if (!engine_->compresses(kind) &&
          std::find(input.uncompressed.begin(), input.uncompressed.end(), kind) == input.uncompressed.end()) {
        input.uncompressed.push_back(kind);
      }
    }
    if (!compresses_any) {
      input.uncompressed.clear();
    }
    return detail::write_report(input);
  }

 private:
  /// Where others wait for this rank, they are told too.
  void refuse(bool misused, const char* why) {
    if (misused) {
      engine_->abandon(why);
      violate(why);
    }
  }

  template <class Step, class Backward>
  static auto run(Step current, Backward&& backward) {
    try {
      std::forward<Backward>(backward)(current);
    } catch (const std::exception& thrown) {
      current.abandon((std::string("an exception in the backward pass: ") + thrown.what()).c_str());
      throw;
    }
    return current.finish();
  }

  std::unique_ptr<engine_type> engine_;
};

}  // namespace gradweave
