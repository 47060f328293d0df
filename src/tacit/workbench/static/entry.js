const address = new URL(location.href);
if (address.searchParams.has("token")) sessionStorage.removeItem("token");
const token = sessionStorage.getItem("token");
if (token) {
  address.searchParams.set("token", token);
  location.replace(address);
}
