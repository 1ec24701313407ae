/// @file
/// A multilayer perceptron, written by hand and without a word about gradweave: it stands for a trainer of your own.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace digits {

/// A weight matrix or a bias. Weights lie [inputs][outputs], row by row.
struct parameter {
  std::string name;
  std::vector<float> value;
  std::vector<float> gradient;  ///< of the mean loss of the batch
  std::vector<float> velocity;
};

/// How a parameter follows its gradient: stochastic gradient descent with momentum.
struct descent {
  float learning_rate = 0;
  float momentum = 0;
};

/// Fully connected layers with ReLU between them, softmax and cross-entropy at the end.
class mlp {
 public:
  /// `widths`: inputs, hidden layers, classes. Weights begin as He et al. (2015, section 2.2) propose, biases as 0.
  mlp(std::vector<std::size_t> widths, std::uint64_t seed) : widths_(std::move(widths)), activations_(widths_.size()) {
    std::mt19937_64 random(seed);
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      const std::size_t inputs = widths_[layer];
      const std::size_t outputs = widths_[layer + 1];
      add_parameter("layer " + std::to_string(layer) + " weight", inputs * outputs);
      std::normal_distribution<float> normal(0, std::sqrt(2.0f / static_cast<float>(inputs)));
      std::generate(parameters_.back().value.begin(), parameters_.back().value.end(), [&] { return normal(random); });
      add_parameter("layer " + std::to_string(layer) + " bias", outputs);
    }
  }

  const std::vector<std::size_t>& widths() const { return widths_; }
  std::vector<parameter>& parameters() { return parameters_; }
  const std::vector<parameter>& parameters() const { return parameters_; }

  /// The mean cross-entropy of a batch; labels.size() is the number of its samples.
  double forward(std::span<const float> inputs, std::span<const std::uint8_t> labels) {
    run_layers(inputs, labels.size());
    std::vector<float>& scores = activations_.back();
    const std::size_t width = widths_.back();
    double loss = 0;
    for (std::size_t sample = 0; sample < labels.size(); ++sample) {
      const std::span<float> row = std::span(scores).subspan(sample * width, width);
      softmax(row);
      loss -= std::log(std::max(row[labels[sample]], 1e-30f));
    }
    return loss / static_cast<double>(labels.size());
  }

  /// Computes the gradients of the batch that `forward` saw last, the last layer's first, and calls
  /// `ready(std::size_t index)` for each parameter as soon as its gradient is final.
  template <class Ready>
  void backward(std::span<const std::uint8_t> labels, Ready&& ready) {
    const std::size_t samples = labels.size();
    // The derivative of the mean loss by the scores: (probability - one where the label is) / samples.
    std::vector<float> delta = activations_.back();
    for (std::size_t sample = 0; sample < samples; ++sample) {
      delta[sample * widths_.back() + labels[sample]] -= 1;
    }
    for (float& each : delta) {
      each /= static_cast<float>(samples);
    }
    for (std::size_t layer = layers(); layer-- > 0;) {
      bias_gradient(layer, delta);
      ready(2 * layer + 1);
      weight_gradient(layer, delta, samples);
      ready(2 * layer);
      if (layer > 0) {
        delta = delta_below(layer, delta, samples);
      }
    }
  }

  void update(descent how) {
    for (parameter& each : parameters_) {
      for (std::size_t i = 0; i < each.value.size(); ++i) {
        each.velocity[i] = how.momentum * each.velocity[i] - how.learning_rate * each.gradient[i];
        each.value[i] += each.velocity[i];
      }
    }
  }

  /// The share of `inputs` whose highest score is at their label.
  double accuracy(std::span<const float> inputs, std::span<const std::uint8_t> labels) {
    run_layers(inputs, labels.size());
    std::size_t right = 0;
    for (std::size_t sample = 0; sample < labels.size(); ++sample) {
      const auto row = activations_.back().begin() + static_cast<std::ptrdiff_t>(sample * widths_.back());
      right += std::max_element(row, row + static_cast<std::ptrdiff_t>(widths_.back())) - row == labels[sample] ? 1 : 0;
    }
    return static_cast<double>(right) / static_cast<double>(labels.size());
  }

 private:
  std::size_t layers() const { return widths_.size() - 1; }

  void add_parameter(std::string name, std::size_t elements) {
    parameters_.push_back(
        {std::move(name), std::vector<float>(elements), std::vector<float>(elements), std::vector<float>(elements)});
  }

  /// activations_[0] is the batch, activations_[n] what layer n - 1 makes of it, [samples][width].
  void run_layers(std::span<const float> inputs, std::size_t samples) {
    activations_[0].assign(inputs.begin(), inputs.end());
    for (std::size_t layer = 0; layer < layers(); ++layer) {
      const std::vector<float>& in = activations_[layer];
      std::vector<float>& out = activations_[layer + 1];
      const std::size_t in_width = widths_[layer];
      const std::size_t out_width = widths_[layer + 1];
      const std::vector<float>& weight = parameters_[2 * layer].value;
      const std::vector<float>& bias = parameters_[2 * layer + 1].value;
      out.resize(samples * out_width);
      for (std::size_t sample = 0; sample < samples; ++sample) {
        float* const out_row = out.data() + sample * out_width;
        std::copy(bias.begin(), bias.end(), out_row);
        for (std::size_t i = 0; i < in_width; ++i) {
          add_scaled(in[sample * in_width + i], weight.data() + i * out_width, out_row, out_width);
        }
        if (layer + 1 < layers()) {
          std::transform(out_row, out_row + out_width, out_row, [](float x) { return std::max(x, 0.0f); });
        }
      }
    }
  }

  void bias_gradient(std::size_t layer, const std::vector<float>& delta) {
    std::vector<float>& gradient = parameters_[2 * layer + 1].gradient;
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (std::size_t row = 0; row < delta.size(); row += gradient.size()) {
      add_scaled(1, delta.data() + row, gradient.data(), gradient.size());
    }
  }

  void weight_gradient(std::size_t layer, const std::vector<float>& delta, std::size_t samples) {
    const std::size_t in_width = widths_[layer];
    const std::size_t out_width = widths_[layer + 1];
    std::vector<float>& gradient = parameters_[2 * layer].gradient;
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    for (std::size_t sample = 0; sample < samples; ++sample) {
      for (std::size_t i = 0; i < in_width; ++i) {
        add_scaled(activations_[layer][sample * in_width + i], delta.data() + sample * out_width,
                   gradient.data() + i * out_width, out_width);
      }
    }
  }

  /// The derivative by the outputs of the layer below `layer`, before their ReLU.
  std::vector<float> delta_below(std::size_t layer, const std::vector<float>& delta, std::size_t samples) const {
    const std::size_t in_width = widths_[layer];
    const std::size_t out_width = widths_[layer + 1];
    const std::vector<float>& weight = parameters_[2 * layer].value;
    std::vector<float> below(samples * in_width);
    for (std::size_t sample = 0; sample < samples; ++sample) {
      for (std::size_t i = 0; i < in_width; ++i) {
        if (activations_[layer][sample * in_width + i] > 0) {
          float sum = 0;
          for (std::size_t j = 0; j < out_width; ++j) {
            sum += weight[i * out_width + j] * delta[sample * out_width + j];
          }
          below[sample * in_width + i] = sum;
        }
      }
    }
    return below;
  }

  /// to += factor * from. Half of the pixels, and of what ReLU lets through, are 0.
  static void add_scaled(float factor, const float* from, float* to, std::size_t count) {
    if (factor == 0) {
      return;
    }
    for (std::size_t i = 0; i < count; ++i) {
      to[i] += factor * from[i];
    }
  }

  static void softmax(std::span<float> scores) {
    const float highest = *std::max_element(scores.begin(), scores.end());
    float sum = 0;
    for (float& score : scores) {
      score = std::exp(score - highest);
      sum += score;
    }
    for (float& score : scores) {
      score /= sum;
    }
  }

  std::vector<std::size_t> widths_;
  std::vector<parameter> parameters_;            // weight and bias of layer 0, of layer 1, ...
  std::vector<std::vector<float>> activations_;  // of the last batch
};

}  // namespace digits
