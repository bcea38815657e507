#include "tools/bench/plot.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "tools/bench/table.h"

namespace dsf::bench {
namespace {

constexpr double kWidth = 720, kHeight = 440, kLeft = 70, kRight = 20, kTop = 40, kBottom = 50;
// Dark to light, so that they differ in grey too.
constexpr std::array<const char*, 6> kColours = {"#1b3a6b", "#b5451b", "#2f7d4f", "#8a5fb0", "#c79a1e", "#5a9bd4"};

struct Point {
  double x = 0, y = 0, low = 0, high = 0;
  bool hollow = false;
};
struct Line {
  std::string name;
  std::vector<Point> points;
  bool dashed = false;
  size_t colour = 0;
};

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<') out += "&lt;";
    else if (c == '&') out += "&amp;";
    else if (c == '>') out += "&gt;";
    else out += c;
  }
  return out;
}

std::string num(double v) { return format_number(v, 1); }

Point point_of(const Cell& cell, double value, const std::vector<std::optional<double>>& repeats) {
  Point p{static_cast<double>(cell.c), value, value, value, false};
  for (const auto& r : repeats) {
    if (!r) continue;
    p.low = std::min(p.low, *r);
    p.high = std::max(p.high, *r);
  }
  return p;
}

std::vector<Line> lines_of(const std::vector<const Summary*>& summaries, const std::string& phase) {
  std::vector<Line> out;
  size_t colour = 0;
  for (const Summary* s : summaries) {
    for (const auto& pass : s->passes) {
      if (pass.phase != phase) continue;
      Line main{s->label + ", thinking " + pass.thinking, {}, false, colour}, stream{main.name + ", one stream", {}, true, colour};
      ++colour;
      for (const auto& cell : pass.cells) {
        const auto& value = phase == "decode" ? cell.decode : cell.prefill;
        if (value) {
          main.points.push_back(point_of(cell, *value, phase == "decode" ? cell.decode_repeats : cell.prefill_repeats));
          main.points.back().hollow = phase == "decode" && cell.decode_form == "span";
        }
        if (phase == "decode" && cell.runs.front().stream_median) stream.points.push_back(point_of(cell, *cell.runs.front().stream_median, {}));
      }
      out.push_back(std::move(main));
      if (phase == "decode") out.push_back(std::move(stream));
    }
  }
  return out;
}

// 1, 2 or 5 times a power of ten that gives four to eight grid lines.
double grid_step(double top) {
  const double raw = top / 5, power = std::pow(10, std::floor(std::log10(raw)));
  for (const double m : {1.0, 2.0, 5.0}) {
    if (raw <= m * power) return m * power;
  }
  return 10 * power;
}

struct Scale {
  double x_max = 8, y_max = 1;
  double x(double v) const { return kLeft + (kWidth - kLeft - kRight) * (v - 0.5) / x_max; }
  double y(double v) const { return kHeight - kBottom - (kHeight - kTop - kBottom) * v / y_max; }
};

std::string axes(const Scale& s, const std::string& title, double step) {
  std::string out = "<text x=\"360\" y=\"22\" text-anchor=\"middle\" font-size=\"15\">" + title + "</text>\n";
  for (double v = 0; v <= s.y_max + step / 2; v += step) {
    out += "<line x1=\"70\" x2=\"700\" y1=\"" + num(s.y(v)) + "\" y2=\"" + num(s.y(v)) + "\" stroke=\"#ddd\"/><text x=\"62\" y=\"" + num(s.y(v) + 4) +
           "\" text-anchor=\"end\">" + format_number(v, v < 10 && step < 1 ? 1 : 0) + "</text>\n";
  }
  for (int c = 1; c <= static_cast<int>(s.x_max); ++c) {
    out += "<text x=\"" + num(s.x(c)) + "\" y=\"" + num(kHeight - kBottom + 18) + "\" text-anchor=\"middle\">" + std::to_string(c) + "</text>\n";
  }
  return out + "<text x=\"385\" y=\"430\" text-anchor=\"middle\">requests at once (C)</text>\n";
}

std::string draw(const Line& line, const Scale& s) {
  const std::string colour = kColours[line.colour % kColours.size()];
  std::string path, out;
  for (const auto& p : line.points) path += num(s.x(p.x)) + "," + num(s.y(p.y)) + " ";
  out += "<polyline fill=\"none\" stroke=\"" + colour + "\" stroke-width=\"" + (line.dashed ? "1\" stroke-dasharray=\"5 4" : "2") + "\" points=\"" + path + "\"/>\n";
  for (const auto& p : line.points) {
    if (p.high > p.low) {
      out += "<line x1=\"" + num(s.x(p.x)) + "\" x2=\"" + num(s.x(p.x)) + "\" y1=\"" + num(s.y(p.low)) + "\" y2=\"" + num(s.y(p.high)) + "\" stroke=\"" + colour + "\"/>\n";
    }
    out += "<circle cx=\"" + num(s.x(p.x)) + "\" cy=\"" + num(s.y(p.y)) + "\" r=\"" + (line.dashed ? "2" : "4") + "\" stroke=\"" + colour + "\" fill=\"" +
           (p.hollow ? "white" : colour) + "\"><title>" + escaped(line.name) + ", C" + format_number(p.x, 0) + ": " + num(p.y) + "</title></circle>\n";
  }
  return out;
}

std::string legend(const std::vector<Line>& lines) {
  std::string out;
  double y = kTop + 8;
  for (const auto& line : lines) {
    const std::string colour = kColours[line.colour % kColours.size()];
    out += "<line x1=\"80\" x2=\"104\" y1=\"" + num(y) + "\" y2=\"" + num(y) + "\" stroke=\"" + colour + "\" stroke-width=\"2\"" + (line.dashed ? " stroke-dasharray=\"5 4\"" : "") +
           "/><text x=\"110\" y=\"" + num(y + 4) + "\">" + escaped(line.name) + "</text>\n";
    y += 16;
  }
  return out;
}

}  // namespace

std::string plot_svg(const std::vector<const Summary*>& summaries, const std::string& phase) {
  const std::vector<Line> lines = lines_of(summaries, phase);
  Scale s;
  double top = 0;
  for (const auto& line : lines) {
    for (const auto& p : line.points) {
      top = std::max(top, p.high);
      s.x_max = std::max(s.x_max, p.x);
    }
  }
  if (!(top > 0)) top = 1;
  const double step = grid_step(top);
  s.y_max = std::ceil(top * 1.25 / step) * step;  // room for the legend
  std::string out =
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"720\" height=\"440\" viewBox=\"0 0 720 440\" font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"720\" height=\"440\" fill=\"white\"/>\n";
  out += axes(s, phase == "decode" ? "Decode, output tokens/s" : "Prefill, input tokens/s", step);
  for (const auto& line : lines) out += draw(line, s);
  return out + legend(lines) + "</svg>\n";
}

std::string plot_tsv(const std::vector<const Summary*>& summaries) {
  std::string out = "phase\tline\tc\tvalue\tlow\thigh\n";
  for (const char* phase : {"decode", "prefill"}) {
    for (const auto& line : lines_of(summaries, phase)) {
      for (const auto& p : line.points) {
        out += std::string(phase) + "\t" + line.name + "\t" + format_number(p.x, 0) + "\t" + json::format_double(p.y) + "\t" + json::format_double(p.low) + "\t" + json::format_double(p.high) + "\n";
      }
    }
  }
  return out;
}

}  // namespace dsf::bench
