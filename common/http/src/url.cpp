#include <algorithm>
#include <cctype>
#include <string>

#include "dsf/base/numeric.h"
#include "dsf/http/client.h"

namespace dsf::http {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; }

std::string lowered(std::string_view s) {
  std::string out(s);
  std::transform(out.begin(), out.end(), out.begin(), lower);
  return out;
}

bool unreserved(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
         c == '.' || c == '~';
}

int hex_value(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = lower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// RFC 3986 5.2.4 on an absolute path.
std::string remove_dot_segments(std::string_view path) {
  std::vector<std::string_view> out;
  bool folder = true;
  for (size_t i = 1; i <= path.size();) {
    const size_t end = std::min(path.find('/', i), path.size());
    const std::string_view part = path.substr(i, end - i);
    folder = end < path.size() || part.empty() || part == "." || part == "..";
    if (part == "..") {
      if (!out.empty()) out.pop_back();
    } else if (part != "." && (!part.empty() || end < path.size())) {
      out.push_back(part);
    }
    i = end + 1;
  }
  std::string text;
  for (const std::string_view part : out) text.append("/").append(part);
  return text.empty() || folder ? text + "/" : text;
}

Result<void> parse_authority(std::string_view authority, std::string_view whole, Url& url) {
  if (authority.find('@') != std::string_view::npos) {
    return fail(Code::kUsage, redacted(whole), "credentials inside a URL are not accepted",
                "give them by header or token file");
  }
  size_t colon = authority.rfind(':');
  if (!authority.empty() && authority.front() == '[') {
    const size_t bracket = authority.find(']');
    if (bracket == std::string_view::npos)
      return fail(Code::kUsage, std::string(whole), "malformed IPv6 address in URL");
    colon = bracket + 1 < authority.size() ? bracket + 1 : std::string_view::npos;
    if (colon != std::string_view::npos && authority[colon] != ':') {
      return fail(Code::kUsage, std::string(whole), "malformed host in URL");
    }
  }
  url.host = lowered(authority.substr(0, colon));
  if (url.host.empty()) return fail(Code::kUsage, std::string(whole), "URL without a host");
  if (colon == std::string_view::npos) return {};
  const auto port = parse_u64(authority.substr(colon + 1));
  if (!port || *port == 0 || *port > 65535) return fail(Code::kUsage, std::string(whole), "malformed port in URL");
  url.port = std::to_string(*port);
  return {};
}

}  // namespace

std::string_view find_header(const Headers& headers, std::string_view name) {
  for (const auto& [key, value] : headers) {
    if (key.size() == name.size() &&
        std::equal(key.begin(), key.end(), name.begin(), [](char a, char b) { return lower(a) == lower(b); })) {
      return value;
    }
  }
  return {};
}

std::string redacted(std::string_view url) {
  const size_t query = url.find('?');
  std::string text(url.substr(0, query));
  const size_t scheme = text.find("://");
  const size_t at = scheme == std::string::npos ? std::string::npos : text.find('@', scheme);
  if (at != std::string::npos && at < std::min(text.find('/', scheme + 3), text.size()))
    text.replace(scheme + 3, at - scheme - 3, "***");
  return query == std::string_view::npos ? text : text + "?...";
}

Result<Url> parse_url(std::string_view url) {
  const bool clean =
      std::all_of(url.begin(), url.end(), [](char c) { return static_cast<unsigned char>(c) > 0x20 && c != 0x7f; });
  if (!clean) return fail(Code::kUsage, redacted(url), "URL holds a space or a control character");
  if (url.size() > 65536) return fail(Code::kUsage, std::string(url.substr(0, 80)), "URL longer than 64 KiB");
  const size_t scheme_end = url.find("://");
  Url out;
  out.scheme = lowered(url.substr(0, scheme_end));
  if (scheme_end == std::string_view::npos || (out.scheme != "http" && out.scheme != "https")) {
    return fail(Code::kUsage, redacted(url), "not an http or https URL");
  }
  std::string_view rest = url.substr(scheme_end + 3);
  rest = rest.substr(0, rest.find('#'));
  const size_t authority_end = std::min(rest.find_first_of("/?"), rest.size());
  DSF_OK(parse_authority(rest.substr(0, authority_end), url, out));
  rest = rest.substr(authority_end);
  const size_t query = rest.find('?');
  out.path = std::string(rest.substr(0, query));
  if (out.path.empty()) out.path = "/";
  if (query != std::string_view::npos) out.query = std::string(rest.substr(query + 1));
  return out;
}

std::string to_string(const Url& url) {
  std::string text = url.scheme + "://" + url.host;
  if (!url.port.empty()) text += ":" + url.port;
  text += url.path;
  if (!url.query.empty()) text += "?" + url.query;
  return text;
}

std::string origin(const Url& url) {
  const std::string port = !url.port.empty() ? url.port : url.scheme == "https" ? "443" : "80";
  return url.scheme + "://" + url.host + ":" + port;
}

Result<Url> resolve_url(const Url& base, std::string_view reference) {
  const size_t scheme = reference.find("://");
  if (scheme != std::string_view::npos && scheme < reference.find_first_of("/?#")) return parse_url(reference);
  if (reference.starts_with("//")) return parse_url(base.scheme + ":" + std::string(reference));
  const Url root{base.scheme, base.host, base.port, "", ""};
  reference = reference.substr(0, reference.find('#'));
  if (reference.starts_with("/")) return parse_url(to_string(root) + std::string(reference));
  if (reference.empty()) return base;
  if (reference.front() == '?') return parse_url(to_string(root) + base.path + std::string(reference));
  const size_t query = reference.find('?');
  const std::string merged = base.path.substr(0, base.path.rfind('/') + 1) + std::string(reference.substr(0, query));
  std::string text = to_string(root) + remove_dot_segments(merged);
  if (query != std::string_view::npos) text += reference.substr(query);
  return parse_url(text);
}

bool is_loopback_host(std::string_view host) {
  if (host == "localhost" || host == "[::1]" || host == "::1") return true;
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string_view::npos;
}

std::string percent_encode(std::string_view text, std::string_view keep) {
  static constexpr char kHex[] = "0123456789ABCDEF";
  std::string out;
  for (const char c : text) {
    if (unreserved(c) || keep.find(c) != std::string_view::npos) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kHex[byte >> 4], kHex[byte & 15]};
    }
  }
  return out;
}

std::string percent_decode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const int high = text[i] == '%' && i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
    const int low = high >= 0 ? hex_value(text[i + 2]) : -1;
    if (low >= 0) {
      out += static_cast<char>(high * 16 + low);
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace dsf::http
